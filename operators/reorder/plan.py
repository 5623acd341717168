"""The settings of an operator that combines or orders rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal, cast

import pyarrow as pa

from ...conf.errors import OptionError, SchemaError
from ...conf.options import text_argument
from ...core.rows.event_times import check_time_type

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


def check_ordered(time: str | None, kind: pa.DataType | None, operator: str, time_format: str | None) -> None:
    """Refuse to order a stream by a time that it lacks, that has no order, or whose numbers do not fit the format."""
    text_argument("time_format", time_format)
    if time is None or kind is None:
        raise OptionError(
            f"{operator} on a stream without a time",
            expected="UpdateStream(df, key=…, event_time=…)",
            hint="name the time column",
        )
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (number or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(
            f"{operator} by {time!r}, which is of type {kind}", expected="a timestamp, a date or a number"
        )
    if time_format is not None:
        check_time_type(time, kind, time_format, "time_format")


def check_inputs(names: Sequence[str], prefer: str | None) -> None:
    """Refuse names that do not distinguish two inputs."""
    given = cast("object", names)  # whatever it is
    texts = isinstance(given, (tuple, list)) and all(isinstance(name, str) for name in given)
    if not texts or len(names) != 2 or len(set(names)) != 2 or any(not name or "/" in name for name in names):
        raise OptionError(
            f"names={given!r}", expected="two different names without a slash: feeds are named by their input"
        )
    if prefer is not None and prefer not in names:
        raise OptionError(f"prefer={prefer!r}", expected="one of the inputs: " + ", ".join(names))
