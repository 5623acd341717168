"""The settings of a join, and the columns of its results."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa

from ...conf.errors import SchemaError
from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM
from .band import LEFT, RIGHT, SIDES, Band, IntervalBand
from .matching import is_exact
from .release.choice import ReleasePlan

__all__ = [
    "JOIN_TIME",
    "ROW_NUMBERS",
    "How",
    "JoinOutput",
    "JoinPlan",
    "JoinSide",
    "OnLimit",
    "ResultColumn",
    "distance_text",
    "limit_text",
    "on_text",
    "result_columns",
]

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""What becomes of rows without a partner, as in SQL."""

OnLimit = Literal["fail", "drop_oldest"]
"""What a join does whose state exceeds its limit."""

JoinOutput = Literal["all", "latest"]
"""Every pair once; or of each key and batch the newest pair."""

JOIN_TIME = "join_time"
"""The column of a result's own time: the later one of the two rows' times."""

ROW_NUMBERS = ("left_row", "right_row")
"""With the output ``all``: numbers of the two rows, which no other rows of the side have; -1 for no row."""

_UNITS = (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1))


@dataclasses.dataclass(frozen=True)
class JoinSide:
    """One input of a join.

    Attributes
    ----------
    on : tuple of str
        The columns that are equal in rows that meet.
    time : str
        The column of the event time.
    schema : pyarrow.Schema
        Of the rows, the system column included.
    key : tuple of str
        The update key, to which punctuation may be limited.
    """

    on: tuple[str, ...]
    time: str
    schema: pa.Schema
    key: tuple[str, ...] = ()


class ResultColumn(NamedTuple):
    """A column that results have from a side.

    Attributes
    ----------
    name : str
        In results.
    side : int
    source : str
        In the rows of that side.
    """

    name: str
    side: int
    source: str


@dataclasses.dataclass(frozen=True)
class JoinPlan:
    """A join. A checkpoint is refused with another plan.

    Attributes
    ----------
    left, right : JoinSide
    band : Band
        Which times meet.
    how : How
    output : JoinOutput
    condition : str or None
        Of pairs, in SQL.
    suffix : str
        Of the right's columns whose name the left has too.
    unit_us : int or None
        Microseconds of one unit of the times; None for numbers of which that is not known.
    shards : int
    state_limit : int or None
        The most bytes that all shards together keep; each may keep its part.
    on_limit : OnLimit
    release : ReleasePlan or None
        How results come into the order of time; None if they leave as they are found.
    early : bool
        Whether a row without a partner is given in the batch in which it arrives, and taken back when it meets one.
    """

    left: JoinSide
    right: JoinSide
    band: Band
    how: How = "inner"
    output: JoinOutput = "all"
    condition: str | None = None
    suffix: str = "_right"
    unit_us: int | None = 1
    shards: int = 1
    state_limit: int | None = None
    on_limit: OnLimit = "fail"
    release: ReleasePlan | None = None
    early: bool = False

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        """Both inputs."""
        return self.left, self.right

    @property
    def keeps(self) -> str:
        """The state, and until when it is kept."""
        return "rows of each side, until the watermark of the other side has passed the last time that they can meet"

    @property
    def left_alone(self) -> bool:
        """Whether results are rows of the left as they are."""
        return self.how in ("semi", "anti")

    @property
    def exact(self) -> bool:
        """Whether keys with one number are equal."""
        return is_exact([self.left.schema.field(name).type for name in self.left.on])

    @property
    def retracts(self) -> bool:
        """Whether tombstones take back rows that were given without a partner. A newer pair needs none."""
        return self.early and self.output == "all"

    @property
    def own_key(self) -> tuple[str, ...]:
        """The columns of row numbers in the key of results, so that a tombstone names exactly the row it takes back."""
        if not self.retracts:
            return ()
        return ROW_NUMBERS[:1] if self.left_alone else ROW_NUMBERS

    @property
    def key(self) -> tuple[str, ...]:
        """The update key of results."""
        return (*(self.left.key if self.left_alone else self.left.on), *self.own_key)

    def gives_unmatched(self, side: int) -> bool:
        """Return whether rows of a side without a partner are results."""
        return self.how in (("left", "full", "anti") if side == LEFT else ("right", "full"))

    def waits_for_other(self, side: int) -> bool:
        """Return whether results with a row's time may come until the other side has passed its partners."""
        return self.gives_unmatched(side) or (side == LEFT and self.left_alone)

    def marks(self, side: int) -> bool:
        """Return whether it has to be known which rows of a side have met a partner."""
        return self.gives_unmatched(side) or (side == LEFT and self.how == "semi")

    def takes_whole(self, side: int) -> bool:
        """Return whether rows of a side keep their whole system column.

        They do where they are results as they are, and where they wait for the order of time.
        """
        return self.release is not None or (self.left_alone and side == LEFT)

    @property
    def time(self) -> str:
        """The column of the results' time."""
        return self.left.time if self.left_alone else JOIN_TIME

    def promise(self, left: int, right: int) -> int:
        """Return the bound of the results' times, given those of the sides."""
        return int(self.promises(*(np.array([bound], dtype=np.int64) for bound in (left, right)))[0])

    def promises(self, left: Int64s, right: Int64s) -> Int64s:
        """Return the bounds of the results' times, given those of the sides: of several keys."""
        kept = [self.band.kept_from_each(LEFT, right), self.band.kept_from_each(RIGHT, left)]
        if self.left_alone:
            return np.minimum(left, kept[LEFT])
        found = np.minimum(left, right)
        if not self.early or self.retracts:
            for side in (LEFT, RIGHT):
                found = np.minimum(found, kept[side]) if self.gives_unmatched(side) else found
        return found

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        """The columns that results have from the sides.

        Raises
        ------
        SchemaError
            Two of them would have one name.
        """
        if self.left_alone:
            left_out = {SYSTEM, *self.own_key}
            return tuple(ResultColumn(name, LEFT, name) for name in self.left.schema.names if name not in left_out)
        return result_columns(self.sides, self.suffix)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of results, the system column included."""
        if self.left_alone:
            fields = [self.left.schema.field(each.source) for each in self.columns]
            own = [pa.field(name, pa.int64()) for name in self.own_key]
            return pa.schema([*fields, *own, self.left.schema.field(SYSTEM)])
        fields = [
            self.sides[each.side].schema.field(each.source).with_name(each.name).with_nullable(True)
            for each in self.columns
        ]
        fields.append(pa.field(JOIN_TIME, self.left.schema.field(self.left.time).type))
        if self.output == "all":
            fields += [pa.field(name, pa.int64()) for name in ROW_NUMBERS]
        return pa.schema([*fields, self.left.schema.field(SYSTEM)])

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, in words."""
        return {
            "on": on_text(self.sides),
            "times": f"{self.left.time} and {self.right.time}",
            "within": self._within(),
            "how": self.how,
            "output": self.output,
            "condition": self.condition or "",
            "order": "none" if self.release is None else self.release.identity(),
            "shards": str(self.shards),
            "early": "yes" if self.early else "",
        }

    def changeable(self) -> dict[str, str]:
        """Return the other settings, in words, which may change from run to run."""
        limit = "" if self.state_limit is None else limit_text(self.state_limit, self.on_limit)
        return {"state limit": limit, **({} if self.release is None else self.release.changeable())}

    def _within(self) -> str:
        if isinstance(self.band, IntervalBand):
            before, after = (distance_text(each, self.unit_us) for each in (self.band.before, self.band.after))
            return f"{before} before to {after} after"
        return f"windows of {distance_text(self.band.segment, self.unit_us)}"


def result_columns(
    sides: tuple[JoinSide, JoinSide], suffix: str, own: Collection[str] = (JOIN_TIME, *ROW_NUMBERS)
) -> tuple[ResultColumn, ...]:
    """Return the columns that pairs have from both sides: those of `on` once, then the left's, then the right's.

    Parameters
    ----------
    sides
        Both inputs.
    suffix
        Of the right's columns whose name the left has too.
    own
        Columns that results have of their own. If an input has them of an earlier join, they get other names, but its
        row numbers, which mean nothing here, are left out.

    Raises
    ------
    SchemaError
        Two of them would have one name.
    """
    on = sides[LEFT].on
    found: list[ResultColumn] = [ResultColumn(name, LEFT, name) for name in on]
    taken = {*own, SYSTEM, *on}
    clash = sorted({*own, SYSTEM} & set(on))
    if clash:
        raise SchemaError(
            f"the join is on {', '.join(clash)}, and results have columns of that name",
            expected="columns of other names than " + ", ".join(own),
            hint="rename the column before the join",
        )
    for side, each in enumerate(sides):
        for name in each.schema.names:
            if name in each.on or name == SYSTEM or (name in own and name in ROW_NUMBERS):
                continue
            shown = name
            if name in own:
                shown = f"{name}_{SIDES[side]}"
            elif side == RIGHT and name in taken:
                shown = name + suffix
            if shown in taken:
                raise SchemaError(
                    f"two columns of the join's results would be called {shown!r}",
                    expected="a name for each",
                    hint="give the join another suffix, or rename the column before it",
                )
            taken.add(shown)
            found.append(ResultColumn(shown, side, name))
    return tuple(found)


def limit_text(state_limit: int, on_limit: OnLimit) -> str:
    """Return a limit of the state in words."""
    return f"{state_limit:,} bytes, then {on_limit}"


def on_text(sides: Sequence[JoinSide]) -> str:
    """Return the columns that are equal in rows that meet, in words."""
    pairs = zip(*(each.on for each in sides), strict=True)
    return ", ".join(one if one == two else f"{one} = {two}" for one, two in pairs)


def distance_text(distance: int, unit_us: int | None) -> str:
    """Return a distance in time exactly: two joins with other distances are never described alike."""
    if unit_us is None:
        return str(distance)
    us = distance * unit_us
    name, size = next((name, size) for name, size in _UNITS if us % size == 0)
    return f"{us // size} {name}"
