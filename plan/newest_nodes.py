"""Steps over the newest row of each key, whose results replace and retract earlier ones."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from ..core.feedback.checkpoint_layout import Kind
from ..core.rows.event_times import UTC_TIMES, TimeFormat
from .nodes import StatefulNode


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Versions(StatefulNode):
    """The newest row of each key, sent to the shard of its partners or its group: before :class:`LatestJoin` and
    :class:`GroupBy`.
    """

    kind: ClassVar[Kind | None] = "latest"
    _word: ClassVar[str] = "newest rows"
    _keeps: ClassVar[str] = (
        "of each key the time and the columns of the join, until it expires, or for as long as the query lives"
    )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class LatestJoin(StatefulNode):
    """Pairs of the newest rows of two streams: the left is the first input."""

    kind: ClassVar[Kind | None] = "latest"
    _word: ClassVar[str] = "join of newest rows"
    _keeps: ClassVar[str] = "the newest row of each key of both sides, until a tombstone removes it, or it expires"

    @property
    def retracts(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class GroupBy(StatefulNode):
    """Aggregates over the newest row of each key, by group."""

    kind: ClassVar[Kind | None] = "latest"
    _word: ClassVar[str] = "groups of newest rows"
    _keeps: ClassVar[str] = "partial aggregates of each group, as long as it has a key"

    @property
    def retracts(self) -> bool:
        return True


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class WindowVersions(StatefulNode):
    """The newest row of each key in each window, sent to its group's shard: before :class:`WindowedGroups`."""

    kind: ClassVar[Kind | None] = "latest"
    _word: ClassVar[str] = "newest rows of windows"
    _keeps: ClassVar[str] = "of each key and window the time and the aggregated values, until the window is final"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class WindowedGroups(StatefulNode):
    """Windows over the newest row of each key, by group."""

    ends: bool = True  # whether windows become final
    early: bool = False  # whether results are emitted before they are final, and retracted

    kind: ClassVar[Kind | None] = "latest"
    _word: ClassVar[str] = "windows of groups"

    @property
    def time_format(self) -> TimeFormat:
        return UTC_TIMES

    @property
    def retracts(self) -> bool:
        return self.early

    @property
    def keeps(self) -> str:
        if self.ends:
            return "partial aggregates of each group and window, until the window is final"
        return "partial aggregates of each group and window, as long as a key's newest row is in it"
