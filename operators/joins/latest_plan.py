"""The settings of a join of the newest rows of two streams, and the columns of its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal

import pyarrow as pa

from ...core.rows.system_column import SYSTEM
from .band import LEFT, RIGHT
from .limit import over_limit
from .matching import is_exact
from .plan import JOIN_TIME, JoinSide, ResultColumn, on_text, result_columns

__all__ = ["GONE", "PAIR_KEYS", "VERSION", "LatestHow", "LatestJoinPlan", "LatestLimit", "LatestSide", "VersionPlan"]

VERSION, GONE = "__upstream_version", "__upstream_gone"
"""Columns beside a side's rows: how many newer rows its key has had, and whether a key that leaves is deleted."""

PAIR_KEYS = ("left_key", "right_key")
"""The update keys of both rows as text: the key of results of which either row may be missing."""

LatestHow = Literal["inner", "left", "right", "full"]


@dataclasses.dataclass(frozen=True)
class LatestSide(JoinSide):
    """One input.

    Attributes
    ----------
    key : tuple of str
        The update key.
    event_time : str or None
        The column by which rows are newer; None for the order of arrival.
    values : tuple of str or None
        Columns whose former values are given too when a newer row replaces them. None where only moves are given.
    retention : int or None
        How far the watermark has to pass a deletion before its time is forgotten; None for never.
    ttl : int or None
        How far the watermark has to pass a row before it expires; None for never.
    """

    key: tuple[str, ...] = ()
    event_time: str | None = None
    values: tuple[str, ...] | None = None
    retention: int | None = None
    ttl: int | None = None

    @property
    def hears(self) -> bool:
        """Whether the side's punctuation counts."""
        return self.retention is not None or self.ttl is not None

    @property
    def stays(self) -> bool:
        """Whether a key always meets the same rows: `on` is part of it."""
        return set(self.on) <= set(self.key)

    @property
    def one(self) -> bool:
        """Whether there is one row for each value of `on`, at most."""
        return set(self.key) <= set(self.on)

    def changeable(self) -> dict[str, str]:
        """Return the settings, in words, which may change from run to run."""
        named = {"tombstone retention": self.retention, "time to live": self.ttl}
        return {name: str(value) for name, value in named.items() if value is not None}

    @property
    def versioned(self) -> pa.Schema:
        """The columns with the version and whether the key is gone."""
        return pa.schema([*self.schema, pa.field(VERSION, pa.int64()), pa.field(GONE, pa.bool_())])


@dataclasses.dataclass(frozen=True)
class LatestLimit:
    """The limit of a join's state, in all stages.

    Attributes
    ----------
    state_limit : int
        The most bytes.
    parts : int
        The shards of all stages, each of which may keep its part.
    """

    state_limit: int
    parts: int

    def check(self, shard: int, on: Sequence[str], size: Callable[[], int], compact: Callable[[], None]) -> None:
        """Refuse a state that is larger than a shard's part.

        Parameters
        ----------
        shard
            Its number.
        on
            The columns of the join.
        size
            Returns the bytes of the state.
        compact
            Makes the state as small as its rows allow.

        Raises
        ------
        StateLimitError
            It is.
        """
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
    """The newest row of each key of one side, sent to where its partners are.

    Attributes
    ----------
    side : LatestSide
    shards : int
    limit : LatestLimit or None
        Of the join's state.
    """

    side: LatestSide
    shards: int
    limit: LatestLimit | None = None

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        side = self.side
        return {
            "key": ", ".join(side.key),
            "time": side.event_time or "none",
            "on": ", ".join(side.on),
            "shards": str(self.shards),
            **({} if side.values is None else {"values": ", ".join(side.values)}),
        }

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        return self.side.changeable()


@dataclasses.dataclass(frozen=True)
class LatestJoinPlan:
    """A join of newest rows. A checkpoint is refused with another plan.

    Attributes
    ----------
    left, right : LatestSide
    how : LatestHow
    suffix : str
        Of the right's columns whose name the left has too.
    shards : int
    limit : LatestLimit or None
        Of the state.
    """

    left: LatestSide
    right: LatestSide
    how: LatestHow = "inner"
    suffix: str = "_right"
    shards: int = 1
    limit: LatestLimit | None = None

    @property
    def sides(self) -> tuple[LatestSide, LatestSide]:
        """Both inputs."""
        return self.left, self.right

    @property
    def exact(self) -> bool:
        """Whether keys with one number are equal."""
        return is_exact([self.left.schema.field(name).type for name in self.left.on])

    def gives_alone(self, side: int) -> bool:
        """Return whether rows of a side without a partner are results."""
        return self.how in (("left", "full") if side == LEFT else ("right", "full"))

    @property
    def of(self) -> int | None:
        """The side whose update key results have: each of its rows has one partner at most, and is in each result."""
        side = RIGHT if self.how == "right" else LEFT
        return side if self.how != "full" and self.sides[1 - side].one else None

    @property
    def whole(self) -> bool:
        """Whether a value of `on` has one result at most, of which either row may be missing."""
        return self.how == "full" and all(each.one and each.stays for each in self.sides)

    @property
    def own_key(self) -> tuple[str, ...]:
        """The columns that results get for their update key: where parts of both keys might be null."""
        return () if self.how == "inner" or self.of is not None or self.whole else PAIR_KEYS

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        """The columns that results have from the sides."""
        return result_columns(self.sides, self.suffix, (*((JOIN_TIME,) if self.has_time else ()), *self.own_key))

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The update key of results."""
        if self.own_key:
            return self.own_key
        names = {(each.side, each.source): each.name for each in self.columns}
        found: list[str] = []
        if self.of != RIGHT:
            found += [names[LEFT, name] for name in self.left.key]
        if self.of != LEFT:
            pairs = dict(zip(self.right.on, self.left.on, strict=True))
            found += [pairs.get(name) or names[RIGHT, name] for name in self.right.key]
        return tuple(dict.fromkeys(found))

    @property
    def has_time(self) -> bool:
        """Whether results have the later of the two times."""
        times = [each.event_time for each in self.sides]
        kinds = [
            None if name is None else each.schema.field(name).type for name, each in zip(times, self.sides, strict=True)
        ]
        return kinds[0] is not None and kinds[0] == kinds[1]

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of results, the system column included."""
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
        """Return the settings to which a checkpoint is bound, in words."""
        return {
            "on": on_text(self.sides),
            "keys": f"{', '.join(self.left.key)} and {', '.join(self.right.key)}",
            "how": self.how,
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        limit = {} if self.limit is None else {"state limit": f"{self.limit.state_limit:,} bytes"}
        return {**self.right.changeable(), **self.left.changeable(), **limit}
