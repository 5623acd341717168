"""The settings of a join of the newest rows of two streams, and the columns of its results."""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Literal

import pyarrow as pa

from ...core.rows.system_column import SYSTEM
from .band import LEFT, RIGHT
from .matching import is_exact
from .plan import JOIN_TIME, JoinSide, ResultColumn, on_text, result_columns

__all__ = ["GONE", "VERSION", "LatestHow", "LatestJoinPlan", "LatestSide", "VersionPlan"]

VERSION, GONE = "__upstream_version", "__upstream_gone"
"""Columns beside a side's rows: how many newer rows its key has had, and whether a key that leaves is deleted."""

LatestHow = Literal["inner", "left"]


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
    """

    key: tuple[str, ...] = ()
    event_time: str | None = None
    values: tuple[str, ...] | None = None
    retention: int | None = None

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
        return {} if self.retention is None else {"tombstone retention": str(self.retention)}

    @property
    def versioned(self) -> pa.Schema:
        """The columns with the version and whether the key is gone."""
        return pa.schema([*self.schema, pa.field(VERSION, pa.int64()), pa.field(GONE, pa.bool_())])


@dataclasses.dataclass(frozen=True)
class VersionPlan:
    """The newest row of each key of one side, sent to where its partners are.

    Attributes
    ----------
    side : LatestSide
    shards : int
    """

    side: LatestSide
    shards: int

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
    """

    left: LatestSide
    right: LatestSide
    how: LatestHow = "inner"
    suffix: str = "_right"
    shards: int = 1

    @property
    def sides(self) -> tuple[LatestSide, LatestSide]:
        """Both inputs."""
        return self.left, self.right

    @property
    def exact(self) -> bool:
        """Whether keys with one number are equal."""
        return is_exact([self.left.schema.field(name).type for name in self.left.on])

    @property
    def to_one(self) -> bool:
        """Whether a row of the left has one partner at most, so that results have the left's key."""
        return self.right.one

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        """The columns that results have from the sides."""
        return result_columns(self.sides, self.suffix, (JOIN_TIME,) if self.has_time else ())

    @cached_property
    def key(self) -> tuple[str, ...]:
        """The update key of results."""
        names = {(each.side, each.source): each.name for each in self.columns}
        found = [names[LEFT, name] for name in self.left.key]
        if not self.to_one:
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
        return {**self.right.changeable(), **self.left.changeable()}
