"""The settings of a join of the newest rows of two streams, and the columns of its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property

import pyarrow as pa

from ...conf.options import count_argument, text_argument, word_argument
from ...core.rows.key import NO_KEY, Key
from ...core.rows.system_column import SYSTEM
from ...expressions.evaluate import RowEvaluator
from .band import LEFT, RIGHT, JoinTimeRange, over_limit
from .pair_kernel import is_exact
from .plan import (
    JOIN_TIME,
    How,
    JoinSide,
    ResultColumn,
    condition_of_pairs,
    on_text,
    result_columns,
    within_text,
)

VERSION, GONE = "__upstream_version", "__upstream_gone"
"""Columns added to a side's rows: the number of newer rows of the key so far, and a flag for a deleted key."""

PAIR_KEYS = Key(("left_key", "right_key"))
"""The update keys of both rows as text: the key of results that may lack either row."""


@dataclasses.dataclass(frozen=True)
class LatestSide(JoinSide):
    """One input of a join of newest rows."""

    key: Key = NO_KEY
    event_time: str | None = None  # the column that orders a key's rows; None for the order of arrival
    # columns whose former values are emitted when a newer row replaces them; None: only moves are
    values: tuple[str, ...] | None = None
    retention: int | None = None  # how far the watermark has to pass a deletion before it is forgotten; None for never
    ttl: int | None = None  # how far the watermark has to pass a row before it expires; None for never

    @property
    def hears(self) -> bool:
        """True if the side's punctuation counts."""
        return self.retention is not None or self.ttl is not None

    @property
    def stays(self) -> bool:
        """True if a key always meets the same rows: `on` is part of it."""
        return set(self.on) <= set(self.key)

    @property
    def one(self) -> bool:
        """True if each value of `on` has one row at most."""
        return set(self.key) <= set(self.on)

    def changeable(self) -> dict[str, str]:
        named = {"tombstone retention": self.retention, "time to live": self.ttl}
        return {name: str(value) for name, value in named.items() if value is not None}

    @property
    def versioned(self) -> pa.Schema:
        """The schema with :data:`VERSION` and :data:`GONE`."""
        return pa.schema([*self.schema, pa.field(VERSION, pa.int64()), pa.field(GONE, pa.bool_())])


@dataclasses.dataclass(frozen=True)
class LatestLimit:
    """The limit of a join's state over all stages."""

    state_limit: int  # bytes
    parts: int  # shards of all stages, each of which may keep its part

    def check(self, shard: int, on: Sequence[str], size: Callable[[], int], compact: Callable[[], None]) -> None:
        """Compact a state whose `size` in bytes exceeds the shard's part; raise StateLimitError if it still does."""
        part = self.state_limit // self.parts
        if size() <= part:
            return
        compact()
        if size() > part:
            raise over_limit(
                shard, size(), on, self.state_limit, self.parts,
                "or let rows expire with ttl: the newest row of each key is kept for good otherwise",
            )  # fmt: skip


@dataclasses.dataclass(frozen=True)
class VersionPlan:
    """The stage that sends the newest row of each key of one side to the shards of its partners."""

    side: LatestSide
    shards: int
    limit: LatestLimit | None = None  # of the join's state

    def identity(self) -> dict[str, str]:
        side = self.side
        return {
            "key": ", ".join(side.key),
            "time": side.event_time or "none",
            "on": ", ".join(side.on),
            "shards": str(self.shards),
            **({} if side.values is None else {"values": ", ".join(side.values)}),
        }

    def changeable(self) -> dict[str, str]:
        return self.side.changeable()


@dataclasses.dataclass(frozen=True)
class LatestJoinPlan:
    """A join of newest rows. A checkpoint refuses another plan."""

    left: LatestSide
    right: LatestSide
    how: How = "inner"
    suffix: str = "_right"  # of the right's columns whose name the left has too
    shards: int = 1
    limit: LatestLimit | None = None
    band: JoinTimeRange | None = None  # the times of rows that meet; None for any
    unit_us: int | None = 1  # microseconds of one unit of the times; None if unknown
    condition: str | None = None  # of pairs, in SQL

    def __post_init__(self) -> None:
        word_argument("how", self.how, How)
        text_argument("suffix", self.suffix or "")
        text_argument("condition", self.condition)
        count_argument("shards", self.shards)

    @property
    def sides(self) -> tuple[LatestSide, LatestSide]:
        return self.left, self.right

    @property
    def exact(self) -> bool:
        """True if keys with equal numbers are equal."""
        return is_exact([self.left.schema.field(name).type for name in self.left.on])

    @property
    def selects(self) -> bool:
        """True if rows with equal values of `on` may not meet."""
        return self.band is not None or self.condition is not None

    @cached_property
    def pair_condition(self) -> RowEvaluator | None:
        """The evaluator of the condition, as in :class:`~upstream.operators.joins.plan.JoinPlan`."""
        return condition_of_pairs(self.condition, self.sides)

    @property
    def left_alone(self) -> bool:
        """True if results are rows of the left as they are."""
        return self.how in ("semi", "anti")

    def gives_alone(self, side: int) -> bool:
        """Return whether rows of a side without a partner are results."""
        return self.how in (("left", "full") if side == LEFT else ("right", "full"))

    @property
    def of(self) -> int | None:
        """The side whose update key results have: each result has one of its rows, with one partner at most."""
        side = RIGHT if self.how == "right" else LEFT
        return side if self.how != "full" and not self.left_alone and self.sides[1 - side].one else None

    @property
    def whole(self) -> bool:
        """True if a value of `on` has one result at most, of which either row may be missing."""
        return self.how == "full" and not self.selects and all(each.one and each.stays for each in self.sides)

    @property
    def own_key(self) -> Key:
        """The columns added to results as their update key, where parts of both keys might be null."""
        identified = self.how == "inner" or self.left_alone or self.of is not None or self.whole
        return Key() if identified else PAIR_KEYS

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        if self.left_alone:
            return tuple(ResultColumn(name, LEFT, name) for name in self.left.schema.names if name != SYSTEM)
        return result_columns(self.sides, self.suffix, (*((JOIN_TIME,) if self.has_time else ()), *self.own_key))

    @cached_property
    def key(self) -> Key:
        if self.own_key or self.left_alone:
            return self.own_key or self.left.key
        names = {(each.side, each.source): each.name for each in self.columns}
        found: list[str] = []
        if self.of != RIGHT:
            found += [names[LEFT, name] for name in self.left.key]
        if self.of != LEFT:
            pairs = dict(zip(self.right.on, self.left.on, strict=True))
            found += [pairs.get(name) or names[RIGHT, name] for name in self.right.key]
        return Key(dict.fromkeys(found))

    @property
    def has_time(self) -> bool:
        """True if results have the later of the two times."""
        times = [each.event_time for each in self.sides]
        kinds = [
            None if name is None else each.schema.field(name).type for name, each in zip(times, self.sides, strict=True)
        ]
        return kinds[0] is not None and kinds[0] == kinds[1] and not self.left_alone

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [
            self.sides[each.side].schema.field(each.source).with_name(each.name).with_nullable(True)
            for each in self.columns
        ]
        if self.has_time:
            assert self.left.event_time is not None
            fields.append(pa.field(JOIN_TIME, self.left.schema.field(self.left.event_time).type))
        fields += [pa.field(name, pa.string()) for name in self.own_key]
        return pa.schema([*fields, self.left.schema.field(SYSTEM)])

    def identity(self) -> dict[str, str]:
        return {
            "on": on_text(self.sides),
            "keys": f"{', '.join(self.left.key)} and {', '.join(self.right.key)}",
            "how": self.how,
            "shards": str(self.shards),
            **({} if self.band is None else {"within": within_text(self.band, self.unit_us)}),
            **({} if self.condition is None else {"condition": self.condition}),
        }

    def changeable(self) -> dict[str, str]:
        limit = {} if self.limit is None else {"state limit": f"{self.limit.state_limit:,} bytes"}
        return {**self.right.changeable(), **self.left.changeable(), **limit}
