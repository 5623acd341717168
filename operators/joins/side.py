"""The rows that a shard of a join keeps of each side, and the low-watermarks of both and of the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError, SchemaError
from ...core.rows.columns import columns_at, null_rows, with_nulls
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ...core.rows.frames import from_frame, split_punctuation
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import SYSTEM, TIMESTAMP, deleted_mask, system_field
from ...core.watermark.bounds import bounds_in
from ..runtime.feeds import FeedBounds, KeyBounds, KeyShare, RaisedBounds, key_mask, punctuation_at
from ..runtime.pack import by_arrival, micros
from ..state.entries import PANE
from ..state.runs import Runs
from ..state.store import Store
from .band import LEFT, RIGHT, SIDES
from .pair_kernel import SortedRows, key_numbers, sorted_rows
from .plan import JoinSide


def rows_in(frames: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Return the rows of some frames, and their punctuation, with the columns of a schema."""
    tables = [as_schema(from_frame(frame), schema) for frame in frames]
    return split_punctuation(pa.concat_tables([schema.empty_table(), *tables]))


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the columns of a schema, with its types. A table that has them is not cast: casts are slow."""
    table = table.select(schema.names)
    return table if table.schema.equals(schema) else table.cast(schema)


def without_key(rows: pa.Table, names: Sequence[str]) -> Mask:
    """Return which rows have a null in one of some columns."""
    found = np.zeros(rows.num_rows, dtype=np.bool_)
    for column in columns_at(rows, names):
        found |= null_rows(column)
    return found


def numbers_of(rows: pa.Table, names: Sequence[str]) -> Int64s:
    """Return the :func:`~upstream.operators.joins.pair_kernel.key_numbers` of rows."""
    return key_numbers(columns_at(rows, names)) if rows.num_rows else np.empty(0, dtype=np.int64)


def checked_rows(rows: pa.Table, *, tombstones: bool = False, step: str = "join") -> pa.Table:
    """Return the rows; refuse coalesced ones, and tombstones unless they are allowed."""
    covered = system_field(rows, "covered")
    if len(covered) and int(pc.max(covered).as_py() or 1) > 1:
        raise SchemaError(
            f"a row before the {step} represents several updates, of which the others were coalesced",
            expected=f"every row: a {step} over the newest ones only would miss others",
            hint=f"put the {step} before the queue, and read the source without coalescing",
        )
    gone = int(pc.sum(deleted_mask(rows)).as_py() or 0)
    if gone and not tombstones:
        raise SchemaError(
            f"{gone} rows before the join are tombstones",
            expected="rows with values: a join by time needs each row that there was, and a tombstone retracts rows",
            hint="leave them out before the join, with a function over the source, or read without `deleted`",
        )
    return rows


def checked_times(rows: pa.Table, name: str) -> Int64s:
    """Return the rows' times as numbers; refuse a row without one."""
    column = rows.column(name)
    if column.null_count:
        raise MalformedRowError(
            f"{column.null_count} of {len(column)} rows have no time in {name!r}, so they have no place in the join",
            expected="a time in each row",
            hint="take such rows out before the join, and count them",
        )
    return ordered(column).astype(np.int64, copy=False)


_ARRIVAL = pa.struct([pa.field("arrival", TIMESTAMP)])
_SAID = pa.struct([pa.field("source", pa.string()), pa.field("arrival", TIMESTAMP)])
_SENT = ("punctuation", "source", "seq", "arrival")


def as_sent(table: pa.Table, name: str | None = None) -> pa.Table:
    """Return a task's rows and punctuation as they go to the shards; refuse tombstones and coalesced rows.

    The name of an input partition is often longer than the rest of a row. A join needs it to order rows of one arrival,
    and for punctuation, so it travels as a number. The input's `name` precedes it, so that two inputs never share one.
    """
    checked_rows(split_punctuation(table)[0])
    source = pc.fill_null(system_field(table, "source"), "").combine_chunks().dictionary_encode()
    names = source.dictionary if name is None else pc.binary_join_element_wise(name, source.dictionary, "/")
    parts = {each: system_field(table, each).combine_chunks() for each in _SENT if each != "source"}
    parts["source"] = pa.DictionaryArray.from_arrays(source.indices, names)
    return _with_system(table, pa.StructArray.from_arrays([parts[each] for each in _SENT], names=list(_SENT)))


def received(frames: Sequence[bytes], schema: pa.Schema) -> tuple[pa.Table, pa.Table]:
    """Return the rows of some frames by arrival, and their punctuation.

    In the system column, rows have only the arrival, and punctuation the source and the arrival. Frames are those of
    :func:`as_sent`, or have the whole system column.
    """
    parts = [split_punctuation(_sent(from_frame(frame).select(schema.names))) for frame in frames]
    # In the order of their first rows, so that most often no row has to be moved.
    rows = sorted((rows for rows, _ in parts if rows.num_rows), key=_first_arrival)
    found = [_reduced(by_arrival(pa.concat_tables(rows)), _ARRIVAL, schema)] if rows else []
    said = [_reduced(punctuation, _SAID, schema) for _, punctuation in parts if punctuation.num_rows]
    return (
        pa.concat_tables([received_schema(schema).empty_table(), *found]),
        pa.concat_tables([_schema(schema, _SAID).empty_table(), *said]),
    )


def received_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows that :func:`received` returns."""
    return _schema(schema, _ARRIVAL)


def _sent(table: pa.Table) -> pa.Table:
    return as_sent(table) if table.schema.field(SYSTEM).type.num_fields > len(_SENT) else table


def _first_arrival(rows: pa.Table) -> tuple[int, int]:
    first = rows.slice(0, 1)
    return int(micros(first, "arrival")[0]), system_field(first, "seq")[0].as_py() or 0


def _reduced(table: pa.Table, system: pa.StructType, schema: pa.Schema) -> pa.Table:
    parts = [system_field(table, field.name).cast(field.type).combine_chunks() for field in system]
    return _with_system(table, pa.StructArray.from_arrays(parts, fields=list(system))).cast(_schema(schema, system))


def _schema(schema: pa.Schema, system: pa.StructType) -> pa.Schema:
    return pa.schema([field if field.name != SYSTEM else pa.field(SYSTEM, system) for field in schema])


def _with_system(table: pa.Table, system: pa.StructArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(SYSTEM), SYSTEM, system)


NUMBER, ROW = "__upstream_number", "__upstream_row"
"""Columns added to rows: the number of the key, and that of the row."""


class KeptSide:
    """The rows of one side that may still meet others, in segments of time of one length.

    With `whole`, rows have their whole system column, otherwise only their arrival.
    """

    def __init__(
        self, store: Store, name: str, side: JoinSide, segment: int, saved: Any, *, whole: bool = True
    ) -> None:
        self._side = side
        self._segment = segment
        extra = [pa.field(each, pa.int64()) for each in (PANE, NUMBER, ROW)]
        self._schema = pa.schema([*(side.schema if whole else received_schema(side.schema)), *extra])
        self._rows = Runs(store, name, saved.get("rows", ()), 1, self._sorted, fit=self._fitted)
        self._met = Runs(store, f"{name}_met", saved.get("met", ()), 1, _once)
        self.kept_from = int(saved.get("from", LOWEST))
        """Rows with an earlier time meet nothing any more."""
        self._thinned = int(saved.get("thinned", 0))
        self.shed_to = int(saved.get("shed", LOWEST))
        """Rows with an earlier time were dropped for want of space, although they might have met others."""
        self.spare = int(saved.get("spare", 0))
        """About how many of the rows meet nothing any more, although their time has not passed."""

    def to_json(self) -> dict[str, Any]:
        known = {"rows": self._rows.known, "met": self._met.known}
        return {**known, "from": self.kept_from, "thinned": self._thinned, "spare": self.spare, "shed": self.shed_to}

    @property
    def rows(self) -> int:
        """The number of kept rows, including those that only wait for the end of their segment."""
        return self._rows.rows

    @property
    def bytes(self) -> int:
        return self._rows.bytes + self._met.bytes

    def times(self) -> Int64s:
        found = [rows.times for rows in self.between(LOWEST, HIGHEST)]
        times = np.concatenate([np.empty(0, dtype=np.int64), *found])
        return times[times >= self.kept_from]

    def shed(self, cut: int) -> int:
        """Drop rows before a time for want of space, and return their number."""
        self.shed_to = max(self.shed_to, cut)
        return self.thin(lambda rows: np.flatnonzero(rows.times < cut))

    def between(self, least: int, greatest: int) -> Iterator[SortedRows]:
        """Yield the kept rows of some times, both ends inclusive, and perhaps others, in sorted tables."""
        least = max(least, self.kept_from)
        if least > greatest:
            return
        for table in self._rows.tables(least // self._segment, greatest // self._segment):
            numbers, times = table.column(NUMBER).to_numpy(), ordered(table.column(self._side.time))
            panes = table.column(PANE).to_numpy()
            sorted_already = panes[0] == panes[-1]  # as all runs are that were merged or added in that order
            yield SortedRows(numbers, times, table) if sorted_already else sorted_rows(numbers, times, table)

    def add(self, rows: SortedRows) -> None:
        """Keep rows that have their :data:`NUMBER` and :data:`ROW`."""
        self._rows.add(rows.table.append_column(PANE, pa.array(self._panes(rows.times))).select(self._schema.names))

    def mark(self, rows: Int64s, times: Int64s) -> None:
        if len(rows):
            self._met.add(_once(pa.table({PANE: self._panes(times), ROW: rows})))

    def have_met(self, rows: Int64s, times: Int64s) -> Mask:
        """Return which rows have met a partner in an earlier batch."""
        if not len(rows):
            return np.zeros(0, dtype=np.bool_)
        panes = self._panes(times)
        found = [table.column(ROW).to_numpy() for table in self._met.tables(int(panes.min()), int(panes.max()))]
        return np.isin(rows, np.concatenate(found)) if found else np.zeros(len(rows), dtype=np.bool_)

    def leaving(self, kept_from: int) -> pa.Table:
        """Return the rows that leave without a partner once rows are kept from a later time on."""
        found: list[pa.Table] = []
        if kept_from > self.kept_from:
            for rows in self.between(self.kept_from, kept_from - 1):
                gone = (rows.times >= self.kept_from) & (rows.times < kept_from)
                number = rows.table.column(ROW).to_numpy()
                gone[gone] = ~self.have_met(number[gone], rows.times[gone])
                if gone.any():
                    found.append(rows.table.filter(pa.array(gone)))
        return pa.concat_tables(found) if found else self._schema.empty_table()

    def drop_below(self, kept_from: int) -> None:
        """Keep rows from a later time on."""
        if kept_from > self.kept_from:
            self.kept_from = kept_from
            for runs in (self._rows, self._met):
                runs.drop_below(kept_from // self._segment if kept_from < HIGHEST else HIGHEST)

    @property
    def has_doubled(self) -> bool:
        """True if there are twice as many rows as :meth:`thin` left, so that it rewrites a row once on average."""
        return self.rows >= 2 * self._thinned and self.rows > 1

    def thin(self, spare: Callable[[SortedRows], Int64s]) -> int:
        """Drop the rows whose positions `spare` returns, given all of them sorted, and return their number."""
        table = pa.concat_tables([self._schema.empty_table(), *self._rows.tables(LOWEST, HIGHEST)])
        times = ordered(table.column(self._side.time)).astype(np.int64, copy=False)
        lasts = times >= self.kept_from
        table, times = table.filter(pa.array(lasts)), times[lasts]
        rows = sorted_rows(table.column(NUMBER).to_numpy(), times, table.combine_chunks())
        gone = spare(rows)
        stays = np.ones(len(rows.times), dtype=np.bool_)
        stays[gone] = False
        if not lasts.all() or len(gone):
            self._rows.drop_below(HIGHEST)
            self._rows.add(rows.table.filter(pa.array(stays)))
            self._forget_marks(rows.table.column(ROW).to_numpy()[stays])
        self._thinned = int(np.count_nonzero(stays))
        self.spare = 0
        return len(gone)

    def first(self) -> int | None:
        """Return about the least time of a row that is kept; None without rows."""
        pane = self._rows.first_from(LOWEST)
        return None if pane is None else max(pane * self._segment, self.kept_from)

    def _forget_marks(self, kept: Int64s) -> None:
        """Drop the marks of all rows but these."""
        marked = self._met.tables(LOWEST, HIGHEST)
        if marked:
            table = pa.concat_tables(marked)
            self._met.drop_below(HIGHEST)
            self._met.add(table.filter(pa.array(np.isin(table.column(ROW).to_numpy(), kept))))

    def _panes(self, times: Int64s) -> Int64s:
        return times // self._segment

    def _sorted(self, table: pa.Table) -> pa.Table:
        return sorted_rows(table.column(NUMBER).to_numpy(), ordered(table.column(self._side.time)), table).table

    def _fitted(self, table: pa.Table) -> pa.Table:
        return with_nulls(table, self._schema)


def _once(table: pa.Table) -> pa.Table:
    _, first = np.unique(table.column(ROW).to_numpy(), return_index=True)
    return table.take(pa.array(first)) if len(first) < table.num_rows else table


class JoinProgress:
    """The low-watermarks of both sides, of their single keys, and of the results."""

    def __init__(
        self, sides: Sequence[JoinSide], saved: Mapping[str, Any], store: Store, number: int = 0, shards: int = 1
    ) -> None:
        self._sides = sides
        self._shard = KeyShare(number, shards, tuple(sides[LEFT].on))
        self.keys = [
            KeyBounds(
                store, f"{name}_keys", side.on, int(saved.get(f"{name}_keys", 0)), self._shard._replace(by=side.on)
            )
            for name, side in zip(SIDES, sides, strict=True)
        ]
        self._feeds = [FeedBounds(saved.get(f"{name}_feeds")) for name in SIDES]
        self.promised = int(saved.get("promised", LOWEST))
        """No later result has an earlier time."""

    def to_json(self) -> dict[str, Any]:
        feeds = {f"{name}_feeds": each.to_json() for name, each in zip(SIDES, self._feeds, strict=True)}
        keys = {f"{name}_keys": len(each) for name, each in zip(SIDES, self.keys, strict=True)}
        return {**feeds, **keys, "promised": self.promised}

    def save(self) -> None:
        """Write the bounds of single keys to the state."""
        for each in self.keys:
            each.save()

    def hear(self, side: int, punctuation: pa.Table, *, single: bool = True) -> None:
        """Raise the bounds of a side's input partitions and, with `single`, of single keys."""
        if punctuation.num_rows == 0:
            return
        each = self._sides[side]
        of_keys = key_mask(punctuation, [*each.on, *each.key])
        rows = punctuation.filter(pa.array(~of_keys))
        if rows.num_rows:
            at = bounds_in(rows.column(each.time), ordered)
            self._feeds[side].hear(system_field(rows, "source").to_pylist(), at.tolist())
        if single and of_keys.any():
            # Punctuation by more columns than these does not count: other rows with these columns may still come.
            rows = punctuation.filter(pa.array(~without_key(punctuation, each.on)))
            self.keys[side].hear(rows, each.key, bounds_in(rows.column(each.time), ordered))

    def raised(self, side: int) -> RaisedBounds | None:
        """Return the keys of a side whose own bounds are higher than in the batch before; None if none has one."""
        return self.keys[side].raised(self._feeds[side].bounds)

    def bound(self, side: int) -> int:
        """Return the low-watermark of a side; `LOWEST` if unknown."""
        found = self._feeds[side].low_watermark
        return LOWEST if found is None else found

    def own_bounds(self, side: int, rows: pa.Table, names: Sequence[str]) -> Int64s:
        """Return a side's own bound for the key of each row; `LOWEST` for a key without one.

        The rows may be of either side, and their key columns `names` may have nulls.
        """
        found = np.full(rows.num_rows, LOWEST, dtype=np.int64)
        if len(self.keys[side]) and rows.num_rows:
            there = ~without_key(rows, names)
            some = rows.filter(pa.array(there))
            found[there] = self.keys[side].of(columns_at(some, names))
        return found

    def late(self, side: int, rows: pa.Table, times: Int64s) -> int:
        """Return how many rows of a side are below its bound, or below that of their key."""
        return int(
            np.count_nonzero(times < np.maximum(self.bound(side), self.own_bounds(side, rows, self._sides[side].on)))
        )

    @property
    def figures(self) -> dict[str, Any]:
        """The report's fields on progress."""
        bounds = {feed: bound for feeds in self._feeds for feed, bound in feeds.bounds.items()}
        return {"bounds": bounds, "promised": self.promised if self.promised > LOWEST else None}

    def promise(self, bound: int, schema: pa.Schema, time: str, now_us: int) -> list[pa.Table]:
        """Raise the low-watermark of the results, and return its punctuation; none unless it has risen."""
        if bound <= self.promised:
            return []
        self.promised = bound
        return [punctuation_at(schema, time, [self._feed], [bound], now_us).cast(schema)]

    def promise_keys(
        self,
        bounds: Callable[[Int64s, Int64s], Int64s],
        key: Sequence[str],
        schema: pa.Schema,
        time: str,
        now_us: int,
    ) -> list[pa.Table]:
        """Raise the low-watermarks of the results of single keys, after that of all, and return their punctuation.

        `bounds` maps the bounds of keys on both sides to those of their results. If the update `key` of the results
        lacks a column of the join, no key has a low-watermark of its own.
        """
        on = list(self._sides[LEFT].on)
        found: list[pa.Table] = []
        if time in on or not set(on) <= set(key):
            return found
        for side in (LEFT, RIGHT):
            mine, others = self.keys[side], self.keys[1 - side]
            if len(mine) == 0:
                continue
            keys, own = mine.entries
            both = [
                np.maximum(self.own_bounds(each, keys, keys.column_names), self.bound(each)) for each in (LEFT, RIGHT)
            ]
            both[side] = np.maximum(own, self.bound(side))
            at = bounds(*both)
            due = mine.due(at, np.maximum(others.promised(keys.columns), self.promised))
            if len(due):
                keys = keys.take(pa.array(due))
                others.count_as_promised(keys, at[due])
                named = keys.rename_columns(on)
                feeds = self._shard.feeds(named, self._feed)
                found.append(punctuation_at(schema, time, feeds, at[due].tolist(), now_us, named).cast(schema))
        return found

    @property
    def _feed(self) -> str:
        return f"join/{self._shard.number}"
