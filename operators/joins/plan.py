"""The settings of a join, and the columns of its results."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from ...conf.errors import CheckpointError, OptionError, SchemaError
from ...conf.options import bytes_argument, count_argument, flag_argument, text_argument, word_argument
from ...conf.units import length_text
from ...core.rows.columns import covers
from ...core.rows.exact_integers import Int64s
from ...core.rows.key import NO_KEY, Key
from ...core.rows.system_column import SYSTEM
from ...expressions.evaluate import RowEvaluator
from .band import LEFT, RIGHT, SIDES, IntervalBand, JoinTimeRange
from .pair_kernel import is_exact
from .release.choice import ReleasePlan

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""The treatment of rows without a partner, as in SQL."""

OnLimit = Literal["fail", "drop_oldest"]
"""The reaction of a join whose state exceeds its limit."""


@dataclasses.dataclass(frozen=True)
class Shards:
    """The parts of a join's state, and their limit: the argument `shards` of joins.

    Without a limit, give the number alone: ``shards=16``.

    Parameters
    ----------
    number
        The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.
    state_limit
        The most bytes that the join keeps, in equal parts for its shards, such as ``"512 MB"``. You can change both
        limits with a restart.
    on_limit
        ``fail`` ends the query at the limit. ``drop_oldest`` drops the rows with the oldest event times, and counts
        them.

    Raises
    ------
    OptionError
        An argument makes no sense.

    Examples
    --------
    >>> bounded = us.Shards(16, state_limit="512 MB", on_limit="drop_oldest")
    >>> near = stream.join(other, on="vehicle_id", within="2 minutes", shards=bounded)
    """

    number: int = 16
    _: dataclasses.KW_ONLY
    state_limit: str | int | None = None
    on_limit: OnLimit = "fail"

    def __post_init__(self) -> None:
        count_argument("shards", self.number)
        bytes_argument("state_limit", self.state_limit)
        word_argument("on_limit", self.on_limit, OnLimit)

    @property
    def limit(self) -> int | None:
        return bytes_argument("state_limit", self.state_limit)


def shards_for(shards: object) -> Shards:
    """Return the parts of a join's state for its argument."""
    return shards if isinstance(shards, Shards) else Shards(shards)  # pyright: ignore[reportArgumentType]


JoinOutput = Literal["all", "latest"]
"""Every pair once; or of each key and batch the newest pair."""

JOIN_TIME = "join_time"
"""The column of a result's own time: the later one of the two rows' times."""

ROW_NUMBERS = ("left_row", "right_row")
"""With the output ``all``: the numbers of the two rows, unique on their side; -1 for no row."""


@dataclasses.dataclass(frozen=True)
class JoinSide:
    """One input of a join."""

    on: Key  # columns that are equal in rows that meet
    time: str  # the column of the event time
    schema: pa.Schema  # of the rows, the system column included
    key: Key = NO_KEY  # the update key: punctuation may concern one key


class ResultColumn(NamedTuple):
    """A column that results take from a side."""

    name: str  # in results
    side: int
    source: str  # in the rows of the side


@dataclasses.dataclass(frozen=True)
class JoinPlan:
    """A join by time. A checkpoint refuses another plan."""

    left: JoinSide
    right: JoinSide
    band: JoinTimeRange
    how: How = "inner"
    output: JoinOutput = "all"
    condition: str | None = None  # of pairs, in SQL
    suffix: str = "_right"  # of the right's columns whose name the left has too
    unit_us: int | None = 1  # microseconds of one unit of the times; None if unknown
    shards: int = 1
    state_limit: int | None = None  # the most bytes of all shards together, of which each may keep its part
    on_limit: OnLimit = "fail"
    release: ReleasePlan | None = None  # None: results leave in any order
    early: bool = False  # emit a row without a partner in the batch of its arrival, and retract it when it meets one

    def __post_init__(self) -> None:
        word_argument("how", self.how, How)
        if self.output not in get_args(JoinOutput) or (self.left_alone and self.output != "all"):
            raise OptionError(
                f"emit={self.output!r} with how={self.how!r}",
                expected="'all', or 'latest' for a join that gives pairs",
                hint="correct emit",
            )
        text_argument("condition", self.condition)
        _check_common(self)
        if self.early:
            self._check_early()
        if self.left_alone:
            _check_row_number(self.own_key, self.left.key)

    def _check_early(self) -> None:
        """Refuse early results of a join that retracts none, or could not retract them."""
        if self.how in ("inner", "semi"):
            raise OptionError(
                f"early=True with how={self.how!r}",
                expected="a join that gives rows without a partner: 'left', 'right', 'full' or 'anti'",
                hint=f"leave out early: how={self.how!r} emits each result at once, and retracts none",
            )
        if self.state_limit is not None and self.on_limit != "fail":
            raise OptionError(
                f"early=True with on_limit={self.on_limit!r}",
                expected="on_limit='fail': a result without a partner cannot be retracted after its row is dropped",
                hint="leave out early or on_limit",
            )

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        return self.left, self.right

    @property
    def keeps(self) -> str:
        """The state and its lifetime, in words."""
        return "rows of each side, until the watermark of the other side has passed the last time that they can meet"

    @cached_property
    def pair_condition(self) -> RowEvaluator | None:
        """The evaluator of the condition. Its columns are ``l.name`` and ``r.name``.

        It is bound where the plan is made and goes to the workers with it. It refuses unknown columns and functions.
        """
        return condition_of_pairs(self.condition, self.sides)

    @property
    def left_alone(self) -> bool:
        """True if results are rows of the left as they are."""
        return self.how in ("semi", "anti")

    @property
    def exact(self) -> bool:
        """True if keys with equal numbers are equal."""
        return is_exact([self.left.schema.field(name).type for name in self.left.on])

    @property
    def retracts(self) -> bool:
        """True if tombstones retract rows emitted without a partner. With ``latest``, a newer pair replaces them."""
        return self.early and self.output == "all"

    @property
    def own_key(self) -> Key:
        """The row numbers in the key of results, by which a tombstone names exactly the row that it retracts."""
        if not self.retracts:
            return Key()
        return Key(ROW_NUMBERS[:1] if self.left_alone else ROW_NUMBERS)

    @property
    def key(self) -> Key:
        return Key((*(self.left.key if self.left_alone else self.left.on), *self.own_key))

    def gives_unmatched(self, side: int) -> bool:
        """Return whether rows of a side without a partner are results."""
        return self.how in (("left", "full", "anti") if side == LEFT else ("right", "full"))

    def waits_for_other(self, side: int) -> bool:
        """Return whether results with a row's time may come until the other side has passed its partners."""
        return self.gives_unmatched(side) or (side == LEFT and self.left_alone)

    def marks(self, side: int) -> bool:
        """Return whether the state has to record which rows of a side have met a partner."""
        return self.gives_unmatched(side) or (side == LEFT and self.how == "semi")

    def takes_whole(self, side: int) -> bool:
        """Return whether a side's rows keep their whole system column, as results or to wait for their order."""
        return self.release is not None or (self.left_alone and side == LEFT)

    @property
    def time(self) -> str:
        return self.left.time if self.left_alone else JOIN_TIME

    def promise(self, left: int, right: int) -> int:
        """Return the low-watermark of the results, given those of the sides."""
        return int(self.promises(*(np.array([bound], dtype=np.int64) for bound in (left, right)))[0])

    def promises(self, left: Int64s, right: Int64s) -> Int64s:
        """Return the low-watermarks of several keys' results, given those of the sides."""
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
        """The columns that results take from the sides; two of one name are refused."""
        if self.left_alone:
            left_out = {SYSTEM, *self.own_key}
            return tuple(ResultColumn(name, LEFT, name) for name in self.left.schema.names if name not in left_out)
        return result_columns(self.sides, self.suffix)

    @cached_property
    def schema(self) -> pa.Schema:
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
        return {
            "on": on_text(self.sides),
            "times": f"{self.left.time} and {self.right.time}",
            "within": within_text(self.band, self.unit_us),
            "how": self.how,
            "emit": self.output,
            "condition": self.condition or "",
            "order": "none" if self.release is None else self.release.identity(),
            "shards": str(self.shards),
            "early": "yes" if self.early else "",
        }

    def changeable(self) -> dict[str, str]:
        limit = "" if self.state_limit is None else limit_text(self.state_limit, self.on_limit)
        return {"state limit": limit, **({} if self.release is None else self.release.changeable())}


def condition_of_pairs(condition: str | None, sides: Sequence[JoinSide]) -> RowEvaluator | None:
    """Return the evaluator of a condition of pairs; refuse unknown columns and functions."""
    if condition is None:
        return None
    from ...expressions.bind import OptionText, bind_condition

    text = OptionText(condition, "condition")
    tables = {
        name: pa.schema([each for each in side.schema if each.name != SYSTEM])
        for name, side in zip("lr", sides, strict=True)
    }
    fields = [each.with_name(f"{name}.{each.name}") for name, schema in tables.items() for each in schema]
    evaluator = RowEvaluator([("holds", bind_condition(text, tables))], pa.schema(fields))
    evaluator.check(text)
    return evaluator


def result_columns(
    sides: tuple[JoinSide, JoinSide], suffix: str, own: Collection[str] = (JOIN_TIME, *ROW_NUMBERS)
) -> tuple[ResultColumn, ...]:
    """Return the columns that pairs take from both sides: those of `on` once, then the left's, then the right's.

    `own` are the results' own columns. An input's columns with these names, from an earlier join, are renamed, but its
    row numbers are dropped, since they mean nothing here.
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


def within_text(band: JoinTimeRange, unit_us: int | None) -> str:
    """Return the times that meet in words."""
    if isinstance(band, IntervalBand):
        before, after = (distance_text(each, unit_us) for each in (band.before, band.after))
        return f"{before} before to {after} after"
    return f"windows of {distance_text(band.segment, unit_us)}"


def distance_text(distance: int, unit_us: int | None) -> str:
    """Return the text of a distance in time, exact so that other distances have other texts."""
    return str(distance) if unit_us is None else length_text(distance * unit_us)


AsOfHow = Literal["inner", "left"]


@dataclasses.dataclass(frozen=True)
class AsOfPlan:
    """A join of each row of the left with the row of the right that is newest at its time.

    A checkpoint refuses another plan.
    """

    left: JoinSide
    right: JoinSide
    how: AsOfHow = "inner"
    tolerance: int | None = None  # the greatest age of the right's row, in units of the times; None for any age
    suffix: str = "_right"  # of the right's columns whose name the left has too
    unit_us: int | None = 1  # microseconds of one unit of the times; None if unknown
    shards: int = 1
    early: bool = False  # emit each row in the batch of its arrival, and revise it until its partner is final
    state_limit: int | None = None  # the most bytes of all shards together, of which each may keep its part
    on_limit: OnLimit = "fail"

    def __post_init__(self) -> None:
        word_argument("how", self.how, AsOfHow)
        _check_common(self)
        if self.early and self.state_limit is not None:
            raise OptionError(
                f"early=True with state_limit={self.state_limit}",
                expected="one of them: an emitted result cannot be revised after its row is dropped",
                hint="leave out early or state_limit",
            )
        _check_row_number(self.own_key, self.left.key)
        if self.tolerance is not None and self.tolerance < 0:
            raise OptionError(
                f"tolerance={self.tolerance!r}", expected="a duration, not negative", hint="correct tolerance"
            )

    @property
    def sides(self) -> tuple[JoinSide, JoinSide]:
        return self.left, self.right

    @property
    def keeps(self) -> str:
        """The state and its lifetime, in words."""
        return (
            "rows of the left, until the watermark of the right has passed them; of the right the newest row of each "
            "key, and later ones"
        )

    def takes_whole(self, side: int) -> bool:
        """Return True: rows of both sides keep their whole system column."""
        del side
        return True

    @cached_property
    def columns(self) -> tuple[ResultColumn, ...]:
        return result_columns(self.sides, self.suffix, self.own_key)

    @property
    def own_key(self) -> Key:
        """The number of the left's row, which completes the key of results that are revised."""
        return Key(ROW_NUMBERS[:1] if self.early else ())

    @cached_property
    def schema(self) -> pa.Schema:
        fields: list[pa.Field] = []
        for each in self.columns:
            field = self.sides[each.side].schema.field(each.source).with_name(each.name)
            fields.append(field if each.side == LEFT and not self.early else field.with_nullable(True))
        fields += [pa.field(name, pa.int64()) for name in self.own_key]
        return pa.schema([*fields, self.left.schema.field(SYSTEM)])

    def identity(self) -> dict[str, str]:
        return {
            "as of": f"{self.left.time} and {self.right.time}",
            "on": on_text(self.sides),
            "tolerance": "" if self.tolerance is None else distance_text(self.tolerance, self.unit_us),
            "how": self.how,
            "shards": str(self.shards),
            "early": "yes" if self.early else "",
        }

    def changeable(self) -> dict[str, str]:
        return {} if self.state_limit is None else {"state limit": limit_text(self.state_limit, self.on_limit)}


def _check_common(plan: JoinPlan | AsOfPlan) -> None:
    """Refuse settings that make no sense in any join by time."""
    text_argument("suffix", plan.suffix or "")
    count_argument("shards", plan.shards)
    word_argument("on_limit", plan.on_limit, OnLimit)
    flag_argument("early", plan.early)


def _check_row_number(own: Sequence[str], key: Sequence[str]) -> None:
    """Raise SchemaError if the left stream's key contains a name in `own`, the columns of row numbers."""
    taken = [name for name in own if name in key]
    if taken:
        raise SchemaError(
            f"the left stream's key has {', '.join(taken)}, and results have a column of that name",
            expected="another name in the key",
            hint="rename the column before the join",
        )


def columns_to_json(sides: Sequence[JoinSide]) -> list[str]:
    """Return the columns of both sides as a JSON value."""
    schemas = [each.schema.remove_metadata().serialize().to_pybytes() for each in sides]
    return [base64.b64encode(each).decode() for each in schemas]


def check_columns(sides: Sequence[JoinSide], saved: Sequence[str], kept: Sequence[int]) -> None:
    """Refuse a side that lacks a column of its kept rows, or has it in another type; `kept` counts rows by side."""
    for name, side, columns, rows in zip(SIDES, sides, saved, kept, strict=True):
        was = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns)))
        if rows and not covers(side.schema, was):
            raise CheckpointError(
                f"rows of the {name} with other columns are kept in this checkpoint's join: {_listed(was)}",
                expected=f"the same columns, or more; now there are {_listed(side.schema)}",
                hint="put the columns back, or start with a new checkpointLocation",
            )


def _listed(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)
