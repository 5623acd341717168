"""The settings of an operator that combines or orders rows."""

from __future__ import annotations

import dataclasses
from typing import Literal

__all__ = ["Late", "ReorderPlan", "Repeats"]

Late = Literal["pass", "refuse"]
"""What becomes of rows below the low-watermark that was promised on: they go on, or are put aside."""

Repeats = Literal["keep", "inputs", "all"]
"""Which rows are one too many of those that are equal in some columns and the time: none; those of other inputs than
the first one's; all but one.
"""

OperatorName = Literal["union", "merge", "ordered", "distinct"]
"""What an operator is to its user."""


@dataclasses.dataclass(frozen=True)
class ReorderPlan:
    """An operator. With another plan a checkpoint is refused, but for what :meth:`identity` leaves out.

    Attributes
    ----------
    name : str
        What it is to its user: ``union``, ``merge``, ``ordered`` or ``distinct``. Its punctuation has this name.
    key : tuple of str
        The update key's columns: punctuation that has one of them speaks for one key.
    by : tuple of str
        The columns that, with the time, decide whether two rows are the same; and by which rows are divided among
        shards.
    time : str or None
        The column of the event time. Without one, rows only get new numbers.
    inputs : tuple of str
        Of a union; none for one stream. The feeds of each are named ``input/feed``.
    hold : bool
        Whether rows are held until the low-watermark lets them go, in the order of time; else they pass at once.
    repeats : Repeats
    prefer : str or None
        The input whose rows win over others that are equal.
    late : Late
        For rows that are not held. Held ones are refused: they cannot be put in order any more.
    flush_rows : int or None
        The most rows that a shard releases in a batch.
    shards : int
    newest : bool
        Whether rows that are older than one of their key that has passed on are superseded: of a union before what asks
        for the newest row of each key alone.
    time_format : str or None
        The format of numbers in the time column, for reports in microseconds of the time that rows wait for.
    """

    name: OperatorName
    key: tuple[str, ...]
    by: tuple[str, ...]
    time: str | None
    inputs: tuple[str, ...] = ()
    hold: bool = False
    repeats: Repeats = "keep"
    prefer: str | None = None
    late: Late = "pass"
    flush_rows: int | None = None
    shards: int = 1
    time_format: str | None = None
    newest: bool = False

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        return {
            "operator": self.name,
            "key": ", ".join(self.by),
            "time": self.time or "none",
            "inputs": ", ".join(self.inputs),
            "repeats": self.repeats,
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        rows = {} if self.flush_rows is None else {"rows a batch": str(self.flush_rows * self.shards)}
        return {**({} if self.prefer is None else {"prefer": self.prefer}), **rows}
