"""The settings of an operator that combines or orders rows."""

from __future__ import annotations

import dataclasses
from typing import Literal

Late = Literal["pass", "refuse"]
"""The treatment of rows below the emitted low-watermark: they pass, or are written to the late table."""

Repeats = Literal["keep", "inputs", "all"]
"""The rows to drop of those that are equal in some columns and the time: none; those of other inputs than the first
row's; all but one.
"""

OperatorName = Literal["union", "merge", "ordered", "distinct"]
"""The operator, as its user calls it."""


@dataclasses.dataclass(frozen=True)
class ReorderPlan:
    """The settings of an operator that combines or orders rows.

    A checkpoint refuses another plan, except for settings that :meth:`identity` leaves out.
    """

    name: OperatorName  # its punctuation has this name
    key: tuple[str, ...]  # the update key: punctuation with one of these columns concerns a single key
    by: tuple[str, ...]  # with the time, these identify equal rows; they also divide rows among shards
    time: str | None  # None: rows only get new sequence numbers
    inputs: tuple[str, ...] = ()  # the feeds of each are named ``input/feed``; empty for one stream
    hold: bool = False  # rows wait for the low-watermark and leave in the order of time; otherwise they pass at once
    repeats: Repeats = "keep"
    prefer: str | None = None  # the input whose rows win over equal ones of others
    late: Late = "pass"  # for rows that pass at once: late rows are always refused if rows are held
    flush_rows: int | None = None  # the most rows that a shard releases in a batch
    shards: int = 1
    time_format: str | None = None  # of numbers in the time column, to report needed low-watermarks in microseconds
    # drop rows older than one of their key that has passed, if later operators need only the newest
    newest: bool = False

    def identity(self) -> dict[str, str]:
        return {
            "operator": self.name,
            "key": ", ".join(self.by),
            "time": self.time or "none",
            "inputs": ", ".join(self.inputs),
            "repeats": self.repeats,
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        rows = {} if self.flush_rows is None else {"rows a batch": str(self.flush_rows * self.shards)}
        return {**({} if self.prefer is None else {"prefer": self.prefer}), **rows}
