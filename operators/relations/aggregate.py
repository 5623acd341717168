"""GROUP BY: the aggregates of each group at each of its change points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from ...core.rows.exact_integers import LOWEST, Int64s
from ..aggregates import functions as exact
from ..aggregates.algebra import Aggregates
from ..state.key_runs import BITS, LOW, PlaceRanges, UInt64s, buckets_at, buckets_for, every_bucket, is_among, pairs
from .arrangement import OperatorState
from .functions import AggregateCall, Columns, Splits
from .group_sums import DistinctSums, Points, Sums
from .operator import Evaluable, Operator, with_columns
from .ordered_values import OrderedValues
from .zsets import (
    OLD,
    TIME,
    WEIGHT,
    Live,
    Span,
    Steps,
    cumulated,
    delta_frame,
    empty_delta,
    equal_rows,
    int64s,
    key_numbers,
    live,
    numbered,
    to_table,
)

_POINT = "__point"
_BUCKET, _BITS = "__bucket", "__bits"


class GroupRows:
    """Aggregates that are computed from the rows of the groups that change.

    Each is computable from representatives, as MAX is the MAX of some MAX. A large group's rows are split into buckets
    by a hash of their values, with one representative each. A step then reads only the buckets
    whose rows change, and the representatives of the others.
    State: the distinct rows of each group, and the representatives of large groups.
    """

    def __init__(self, by: pa.Schema, columns: Columns, state: OperatorState) -> None:
        self._by = by.names
        self._names = [name for name in columns.schema.names if name in columns.of_rows]
        fields = [columns.schema.field(name) for name in self._names]
        self._extremes = Aggregates.of(columns.extremes, columns.schema) if columns.extremes else None
        self._inputs = pa.schema(
            [columns.schema.field(name) for name in (self._extremes.inputs if self._extremes else ())]
        )
        self._summaries = columns.summaries
        self._columns = columns
        self._rows = pa.schema([*by, *fields])
        weights = pa.schema([*self._rows, pa.field(WEIGHT, pa.int64())])
        self._kept = state.arrangement("rows", weights, self._names)
        more = [pa.field(name, pa.int64()) for name in (_BUCKET, _BITS)]
        self._kept_representatives = state.arrangement("representatives", pa.schema([*self._rows, *more]), [_BUCKET])

    def step(self, points: Points, rows: pl.DataFrame, group: Int64s, counts: Int64s) -> pl.DataFrame:
        """Return the results at each change point. ``counts`` are each group's rows after the step."""
        stands = self._representatives_of(points)
        after = buckets_for(counts, stands.bits)
        places = self._kept.places_of(rows, points.numbers[group])
        touched = np.unique(pairs(group, buckets_at(places, stands.bits[group])))
        # A step without changes reads the small groups too: they have no representatives.
        divided = np.flatnonzero((after != stands.bits) | (stands.bits == 0))
        old = np.union1d(touched, every_bucket(divided, stands.bits[divided]))
        found = self._bucket_rows(points, rows, places, group, stands.bits, old)
        last = found.steps.lasts
        weights = found.steps.values[0][last]
        kept = found.values.with_columns(pl.Series(WEIGHT, weights))
        there = np.flatnonzero(weights != 0)
        written = np.flatnonzero(found.changed & (weights != 0))
        self._kept.write_at(kept[written], found.places[written], found.replaced)
        stays = ~np.isin(stands.pairs, old)
        results = self._results(points, found, stands.rows.filter(pl.Series(stays)), stands.group[stays])
        if after.any() or stands.bits.any():
            at = found.group[there]
            buckets = pairs(at, buckets_at(found.places[there], after[at]))
            self._represent(points, stands, stays, kept[there], buckets, after)
        return results

    def _representatives_of(self, points: Points) -> _Representatives:
        # While no group is large, nothing is searched for.
        numbers = points.numbers if self._kept_representatives.rows else points.numbers[:0]
        rows = self._kept_representatives.read(numbers)
        group = points.find(rows)
        mine = group < points.groups
        rows, group = rows.filter(pl.Series(mine)), group[mine]
        bits = np.zeros(points.groups, dtype=np.int64)
        bits[group] = int64s(rows, _BITS)
        return _Representatives(rows, group, pairs(group, int64s(rows, _BUCKET)), bits, mine)

    def _bucket_rows(
        self, points: Points, rows: pl.DataFrame, places: UInt64s, group: Int64s, bits: Int64s, old: Int64s
    ) -> _BucketRows:
        """Return the ``old`` buckets' distinct rows with their counts, and those that change."""
        columns = [*self._by, *self._names]
        at = old >> BITS
        kept = self._kept.read_between(PlaceRanges.of_buckets(points.numbers[at], old & LOW, bits[at]))
        of, kept_places = points.find(kept), self._kept.places
        mine = of < points.groups
        mine[mine] = is_among(pairs(of[mine], buckets_at(kept_places[mine], bits[of[mine]])), old)
        # Rows at other places are distinct and equal to none that changes.
        same = mine & is_among(kept_places, np.sort(places))
        apart = mine & ~same
        was = kept.with_columns(pl.lit(OLD).alias(TIME)).select(*columns, TIME, WEIGHT)
        changing = pl.concat([rows.select(*columns, TIME, WEIGHT), was.filter(pl.Series(same))])
        ids, first = numbered(changing, columns)
        size, alone = len(first), int(np.count_nonzero(apart))
        changed = np.zeros(size + alone, dtype=np.bool_)
        changed[ids[: rows.height]] = True
        replaced = same.copy()
        replaced[same] = changed[ids[rows.height :]]
        alike = was.filter(pl.Series(apart))
        together = pl.concat([changing, alike])
        ids = np.concatenate([ids, np.arange(size, size + alone)])
        first = np.concatenate([first, np.arange(changing.height, together.height)])
        return _BucketRows(
            together.select(columns)[first],
            cumulated(ids, int64s(together, TIME), int64s(together, WEIGHT)),
            np.concatenate([group, of[same], of[apart]])[first],
            np.concatenate([places, kept_places[same], kept_places[apart]])[first],
            changed,
            replaced,
        )

    def _represent(
        self,
        points: Points,
        stands: _Representatives,
        stays: npt.NDArray[np.bool_],
        kept: pl.DataFrame,
        bucket: Int64s,
        after: Int64s,
    ) -> None:
        """Write the representatives of large groups for those that do not stay."""
        large = np.flatnonzero(after[bucket >> BITS] > 0)
        found, positions = np.unique(bucket[large], return_inverse=True)
        part = Live(0, len(found), large, positions, int64s(kept, WEIGHT)[large])
        group = found >> BITS
        new = points.with_keys(group, self._part(part, kept, self._columns.splits).get_columns()).with_columns(
            pl.Series(_BUCKET, found & LOW), pl.Series(_BITS, after[group])
        )
        replaced = stands.mine.copy()
        replaced[replaced] = ~stays
        self._kept_representatives.write(new, points.numbers[group], replaced)

    def _results(self, points: Points, found: _BucketRows, stands: pl.DataFrame, group: Int64s) -> pl.DataFrame:
        ids, size = found.steps.ids, len(found.group)
        more = np.arange(size, size + stands.height)
        steps = Steps(
            np.concatenate([ids, more]),
            np.concatenate([found.steps.times, np.full(stands.height, OLD)]),
            [np.concatenate([found.steps.values[0], np.ones(stands.height, dtype=np.int64)])],
        )
        values = pl.concat([found.values.select(self._names), stands.select(self._names)])
        parts = live(steps, np.concatenate([found.group, group]), points.steps)
        return pl.concat([self._part(each, values) for each in parts])

    def _part(self, part: Live, values: pl.DataFrame, splits: Splits | None = None) -> pl.DataFrame:
        """Return the results; with ``splits``, the values of the representatives instead."""
        found, positions, size = part.ids, part.positions - part.begin, part.end - part.begin
        results: list[pl.DataFrame] = []
        if self._extremes is not None:
            table = to_table(values.select(self._inputs.names)[found], self._inputs)
            state = self._extremes.lift(table, positions, size)
            lowered = pl.from_arrow(self._extremes.lower(state))
            assert isinstance(lowered, pl.DataFrame)
            results.append(lowered if splits is None else lowered.rename(splits.extremes))
        summaries = self._summaries if splits is None else splits.summaries
        if summaries:
            copies = np.repeat(np.arange(len(found)), part.weights)
            frame = values.select(self._names)[found[copies]].with_columns(pl.Series(_POINT, positions[copies]))
            by_point = frame.group_by(_POINT).agg(*summaries.values())
            all_points = pl.DataFrame({_POINT: np.arange(size)})
            results.append(all_points.join(by_point, on=_POINT, how="left", maintain_order="left").drop(_POINT))
        return pl.concat(results, how="horizontal")


class _Representatives(NamedTuple):
    """The representatives of the buckets of large groups."""

    rows: pl.DataFrame  # One for each bucket.
    group: Int64s  # Of each row.
    pairs: Int64s  # Each row's bucket, as a pair of group and bucket.
    bits: Int64s  # By group: its number of buckets, as a power of two.
    mine: npt.NDArray[np.bool_]  # Of the rows that were read, those of these groups.


class _BucketRows(NamedTuple):
    """The distinct rows of some buckets."""

    values: pl.DataFrame
    steps: Steps  # By row: its count.
    group: Int64s  # Of each row.
    places: UInt64s  # Of each row.
    changed: npt.NDArray[np.bool_]  # The rows with changes.
    replaced: npt.NDArray[np.bool_]  # Of the rows that were read, those with changes.


_ROWS = "__rows"


class AggregateOperator(Operator):
    """The aggregates of each group (GROUP BY). Without ``by`` there is one group from the beginning.

    Sums, counts, averages, variances and their DISTINCT forms follow from partial sums, which also take retractions.
    Percentiles, modes and lists follow from the values in their order. All other functions are computed from the rows
    of the groups that change.
    State: partial sums by group, the distinct values for DISTINCT, percentiles and lists, and :class:`GroupRows`. It
    lacks the groups that do not change any more.
    """

    def __init__(
        self,
        schema: pa.Schema,
        by: Sequence[tuple[str, Evaluable]],
        calls: Sequence[AggregateCall],
        state: OperatorState,
        changes_us: int | None = None,  # For how long after its first row a group may change; None: for ever.
    ) -> None:
        super().__init__(schema)
        self._state, self._changes = state, changes_us
        self.forgets = changes_us is not None
        self._by = [(f"__by{number}", each) for number, (_, each) in enumerate(by)]
        self._names = dict(zip((name for name, _ in self._by), (name for name, _ in by), strict=True))
        self._values = state.values
        self._columns = Columns(calls)
        self._by_schema = by_schema = pa.schema([pa.field(name, each.type) for name, each in self._by])
        self._sums = Sums(by_schema, {_ROWS: exact.count(), **self._columns.added}, self._columns.schema, state)
        self._distinct = [
            DistinctSums(by_schema, name, columns, aggregate, self._columns.schema, state)
            for name, (columns, aggregate) in self._columns.distinct.items()
        ]
        schema = self._columns.schema
        self._ordered = [OrderedValues(by_schema, order, schema, state) for order in self._columns.ordered]
        self._over = state.pending("over", by_schema.append(pa.field(TIME, pa.int64())))
        some = self._columns.extremes or self._columns.summaries
        self._of_rows = [GroupRows(by_schema, self._columns, state)] if some else []

    def acts(self, span: Span) -> bool:
        if self._changes is None or not self._over.due(span.until):
            return False
        return span.until - self._values.get("swept", LOWEST) > self._changes

    def step(self, inputs: Sequence[pl.DataFrame], span: Span) -> pl.DataFrame:
        found = self._moves(inputs[0], span)
        if self.acts(span):
            self._sweep(span.until)
        return found

    def _sweep(self, until: int) -> None:
        """Drop the groups that do not change any more, once in a while: each is then read about twice."""
        self._values["swept"] = until
        over = self._over.take(until).drop(TIME)
        count = int(numbered(over, over.columns).ids.max()) + 1

        def stays(rows: pl.DataFrame) -> npt.NDArray[np.bool_]:
            return numbered(pl.concat([over, rows.select(over.columns)]), over.columns).ids[over.height :] >= count

        self._state.keep(stays)

    def _moves(self, changes: pl.DataFrame, span: Span) -> pl.DataFrame:
        begins = not self._by and not self._values.get("begun")
        if changes.height == 0 and not begins:
            return self.nothing
        by = [name for name, _ in self._by]
        rows = self._columns.of(with_columns(changes, self._by))[[*by, *self._columns.schema.names, TIME, WEIGHT]]
        groups = numbered(rows, by)
        keys = rows[by][groups.first] if by else pl.DataFrame({_ROWS: [0]}).select([])
        numbers = key_numbers(keys, by) if by else np.zeros(1, dtype=np.int64)
        ids, times = groups.ids, int64s(rows, TIME)
        if begins:
            self._values["begun"] = True
            points = self._points(keys, numbers, np.append(ids, 0), np.append(times, span.start))
        elif span.net:
            points = Points.of_net(span.until - 1, keys, numbers)
        else:
            points = self._points(keys, numbers, ids, times)
        positions = points.positions(ids, times)
        weights = int64s(rows, WEIGHT)
        result = self._sums.step(points, rows, positions, weights)
        columns = [result]
        columns += [each.step(points, rows, ids) for each in self._distinct]
        counts = int64s(result, _ROWS)
        if self._changes is not None and not span.ends:
            new = keys[np.flatnonzero(counts[points.begins] == 0)]
            self._over.add(new.with_columns(pl.lit(span.until + self._changes, pl.Int64).alias(TIME)))
        columns += [each.step(points, rows, ids, counts[points.begins]) for each in self._ordered]
        columns += [each.step(points, rows, ids, counts[points.ends]) for each in self._of_rows]
        found = pl.concat(columns, how="horizontal")
        there = found.get_column(_ROWS).to_numpy() > 0
        if not by:
            there = there | (points.steps.times != OLD) | (not begins)
        return self._moved(points, found, there)

    def _points(self, keys: pl.DataFrame, numbers: Int64s, ids: Int64s, times: Int64s) -> Points:
        """Return each group's time before the step, and all change points."""
        count = len(numbers)
        of, at = np.concatenate([ids, np.arange(count)]), np.concatenate([times, np.full(count, OLD)])
        return Points(cumulated(of, at, np.zeros(len(at), dtype=np.int64)), keys, numbers)

    def contents(self) -> pl.DataFrame | None:
        by = [name for name, _ in self._by]
        keys = self._sums.groups() if by else pl.DataFrame({_ROWS: [0]}).select([])
        count = keys.height if by else 1
        ids = np.arange(count)
        numbers = key_numbers(keys, by) if by else np.zeros(1, dtype=np.int64)
        points = self._points(keys, numbers, ids[:0], ids[:0])
        columns = [result := self._sums.before(points)]
        columns += [each.before(points) for each in self._distinct]
        rows, counts = empty_delta(pa.schema([*self._by_schema, *self._columns.schema])), int64s(result, _ROWS)
        columns += [each.step(points, rows, ids[:0], counts) for each in (*self._ordered, *self._of_rows)]
        return delta_frame(self._with_keys(points, self._shown(pl.concat(columns, how="horizontal")), ids), 0, 1)

    def _moved(self, points: Points, found: pl.DataFrame, there: npt.NDArray[np.bool_]) -> pl.DataFrame:
        """Retract each group's old row and emit its new one, at each change point."""
        steps, shown = points.steps, self._shown(found)
        follows = np.flatnonzero(steps.times != OLD)
        both = follows[there[follows] & there[follows - 1]]
        differs = np.ones(len(there), dtype=np.bool_)
        differs[both[equal_rows(shown, both - 1, both)]] = False
        now = follows[there[follows] & differs[follows]]
        before = follows[there[follows - 1] & differs[follows]]
        times = np.concatenate([steps.times[before], steps.times[now]])
        signs = np.repeat(np.array([-1, 1]), [len(before), len(now)])
        return delta_frame(self._with_keys(points, shown, np.concatenate([before - 1, now])), times, signs)

    def _shown(self, found: pl.DataFrame) -> pl.DataFrame:
        """Return the columns of the result, without those of the groups."""
        names = list(self.dtypes)[len(self._by) :]
        return pl.DataFrame([found.get_column(name).cast(self.dtypes[name]) for name in names])

    def _with_keys(self, points: Points, shown: pl.DataFrame, at: Int64s) -> pl.DataFrame:
        keys = points.keys[points.steps.ids[at]].rename(self._names).get_columns() if self._by else []
        return pl.DataFrame([*keys, *(shown[at].get_columns() if shown.width else [])])
