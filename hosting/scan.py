"""The scan: rows of streams and stored relations as frames for the shards of the first stage."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.deep_stack import on_deep_stack
from ..core.feedback.lanes import LANE, NEWEST, Lane
from ..core.rows.columns import columns_at
from ..core.rows.event_times import NO_TIME, UTC_TIMES, TimeFormat, event_time_us, times_as
from ..core.rows.exact_integers import Int64s
from ..core.rows.frames import by_number, some_at_once, split_punctuation, to_frame
from ..core.rows.newest import NewestPerKey, NewestSoFar, key_codes
from ..core.rows.sort_keys import ordered, places
from ..core.rows.system_column import DELETED, SYSTEM, TIMESTAMP, deleted_mask, system_field, with_system_fields
from ..core.watermark.bounds import bounds_in
from ..expressions.nodes import Expression, fields
from ..operators.relations.operator import FAILURES, computed, reason_of
from ..operators.relations.plan.nodes import Stream
from ..operators.relations.queue_project import ARRIVAL
from ..operators.relations.streams import SEQUENCE, TOMBSTONE
from ..operators.relations.zsets import dtypes_of, is_hashable, key_numbers, mixed
from ..operators.runtime.feeds import key_mask
from ..operators.runtime.pack import micros
from ..operators.tables.lookup import Version, rows_at
from .host_plan import HostPlan, HostPlans, PlacedRoute
from .messages import Command, Outbox, control_of

# Pages of the state go by the same hash. Without this, a slot would use every n-th of its pages only.
_SALT = 0x51075
# Of so many rows, values are hashed once each.
_MANY = 1000


def slots_of(columns: Sequence[pl.Series], slots: int) -> Int64s:
    """Return each row's slot, from 0 to ``slots`` - 1.

    Rows of equal values go to one slot: null with null, NaN with NaN, -0.0 with 0.0. Widths of integers and floats and
    units of timestamps do not matter. Unhashable values (lists, maps, intervals) are ignored.
    """
    if not columns:
        raise ValueError("what has no columns is gathered: its slot does not depend on rows")
    frame = pl.DataFrame([_plain(each).alias(str(at)) for at, each in enumerate(columns)])
    one = frame.to_series().to_arrow(compat_level=pl.CompatLevel.oldest())
    if frame.width == 1 and frame.height > _MANY and is_hashable(one.type):
        codes, size = key_codes([one])
        if size <= frame.height // 2:
            place = np.zeros(size, dtype=np.int64)
            place[codes] = np.arange(frame.height)
            return _slots(frame[place], slots)[codes]
    return _slots(frame, slots)


def _slots(frame: pl.DataFrame, slots: int) -> Int64s:
    return (mixed(key_numbers(frame, frame.columns), _SALT) % np.uint64(slots)).astype(np.int64)


def _plain(values: pl.Series) -> pl.Series:
    dtype = values.dtype
    if isinstance(dtype, pl.Datetime):
        return values.dt.epoch("us")
    if isinstance(dtype, pl.Duration):
        return values.dt.total_microseconds()
    if dtype == pl.UInt64:
        return values.reinterpret(signed=True)
    if dtype.is_integer():
        return values.cast(pl.Int64)
    if dtype == pl.Float32:
        return values.cast(pl.Float64)
    return values


_FEED = "__feed"
_FIRST = "__first"
_CONSTANT, _LEAST = b"upstream.constant", b"upstream.least"
# Rows of one task mostly have one feed and one arrival, and none is a tombstone: sent once, not in each row.
_OFTEN_CONSTANT = {
    TOMBSTONE: pa.bool_(),
    ARRIVAL: pa.int64(),
    _FEED: pa.dictionary(pa.int32(), pa.string()),
}
_WIDE = {str(each): each for each in (pa.int64(), TIMESTAMP)}


def as_sent(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """Convert some columns of rows with the system column to the form in which the scan sends them.

    A system value that is the same in all rows moves to the schema's metadata. So does the least of whole numbers and
    times that are within 32 bits of it. Rows that represent others have the first arrival of these.
    """
    arrivals = micros(rows, "arrival")
    firsts = micros(rows, "first_arrival", arrivals)
    more = {
        SEQUENCE: pc.fill_null(system_field(rows, "seq"), 0).cast(pa.int64()),
        TOMBSTONE: deleted_mask(rows),
        ARRIVAL: pa.array(arrivals),
        _FEED: system_field(rows, "source").cast(pa.string()),
    }
    if (firsts < arrivals).any():
        more[_FIRST] = pa.array(firsts)
    constant: dict[str, Any] = {}
    for name in _OFTEN_CONSTANT if rows.num_rows else ():
        first = more[name][0].as_py()
        if first is not None and pc.all(pc.equal(more[name], first), skip_nulls=False).as_py():
            constant[name] = first
            del more[name]
    leasts: dict[str, tuple[str, int]] = {}
    columns = {**{name: rows.column(name) for name in names}, **more}
    for name, column in columns.items():
        kind = str(column.type)
        if kind in _WIDE:
            numbers = column.cast(pa.int64())
            least, most = pc.min_max(numbers).as_py().values()
            if least is not None and most - least < 1 << 31:
                leasts[name] = kind, least
                columns[name] = pc.subtract(numbers, least).cast(pa.int32())
    return pa.table(columns, metadata={_CONSTANT: json.dumps(constant), _LEAST: json.dumps(leasts)})


def in_order(tables: Sequence[pa.Table]) -> pa.Table:
    """Merge the rows of several tasks, from :func:`as_sent` or this function, in order of arrival."""
    parts = sorted((_whole(each) for each in tables if each.num_rows), key=lambda rows: _place(rows, 0))
    if not parts:
        return _whole(tables[0])
    rows = pa.concat_tables(parts, promote_options="default").unify_dictionaries().combine_chunks()
    if all(_is_run(each) for each in parts) and all(map(_precedes, parts, parts[1:])):
        return rows
    feeds = rows.column(_FEED).chunk(0)
    ranks = np.append(pc.rank(feeds.dictionary).to_numpy().astype(np.int64), len(feeds.dictionary) + 1)
    feed = pa.chunked_array([pa.array(ranks[pc.fill_null(feeds.indices, -1).to_numpy()])])
    # NumPy's stable sort merges runs without comparing all rows.
    order = np.argsort(places([rows.column(ARRIVAL), rows.column(SEQUENCE), feed]), kind="stable")
    return rows.take(pa.array(order))


def oldest_arrival(rows: pa.Table) -> int | None:
    """Return the oldest arrival in microseconds of rows in order and of those that they represent; None for no rows."""
    found = [rows.column(name) for name in (ARRIVAL, _FIRST) if name in rows.column_names]
    return min(pc.min(each).as_py() for each in found) if rows.num_rows else None


def rows_of(rows: pa.Table, schema: pa.Schema) -> pl.DataFrame:
    """Return rows in the form that an evaluation takes, with the oldest arrival that each represents.

    Columns that were not sent, which no query of the evaluation reads, are null.
    """
    frame = pl.from_arrow(_without(rows, _FEED))
    assert isinstance(frame, pl.DataFrame)
    lacks = {name: dtype for name, dtype in dtypes_of(schema).items() if name not in frame.columns}
    frame = frame.with_columns(pl.lit(None, dtype).alias(name) for name, dtype in lacks.items()) if lacks else frame
    if _FIRST not in frame.columns:
        return frame
    return frame.with_columns(pl.min_horizontal(ARRIVAL, _FIRST).alias(ARRIVAL)).drop(_FIRST)


def as_letters(rows: pa.Table) -> pa.Table:
    """Return rows, from :func:`in_order`, with the columns of dead letters: the user's, the feed, and the deletion."""
    rows = _without(rows, ARRIVAL, _FIRST, SEQUENCE)
    rows = rows.set_column(rows.schema.get_field_index(_FEED), f"{SYSTEM}_source", rows.column(_FEED).cast(pa.string()))
    return rows.rename_columns([DELETED if name == TOMBSTONE else name for name in rows.column_names])


def _without(rows: pa.Table, *names: str) -> pa.Table:
    return rows.select([name for name in rows.column_names if name not in names])


def _whole(table: pa.Table) -> pa.Table:
    """Restore the columns as they were before :func:`as_sent`, always with the same types."""
    metadata = table.schema.metadata or {}
    constant, leasts = (json.loads(metadata.get(name, b"{}")) for name in (_CONSTANT, _LEAST))
    for name, (kind, least) in leasts.items():
        if name not in table.column_names:  # another route sends it
            continue
        numbers = pc.add(table.column(name).cast(pa.int64()), least)
        table = table.set_column(table.schema.get_field_index(name), name, numbers.cast(_WIDE[kind]))
    columns = [name for name in table.column_names if name not in _OFTEN_CONSTANT]
    whole = table.select(columns).replace_schema_metadata(None)
    for name, dtype in _OFTEN_CONSTANT.items():
        column: pa.Array | pa.ChunkedArray
        if name not in constant:
            column = table.column(name).cast(dtype)
        elif name == _FEED:
            codes = pa.array(np.zeros(table.num_rows, dtype=np.int32))
            column = pa.DictionaryArray.from_arrays(codes, pa.array([constant[name]], pa.string()))
        else:
            column = pa.repeat(pa.scalar(constant[name], dtype), table.num_rows)
        whole = whole.append_column(pa.field(name, dtype), column)
    return whole


def _place(rows: pa.Table, at: int) -> tuple[int, int, str]:
    return rows.column(ARRIVAL)[at].as_py(), rows.column(SEQUENCE)[at].as_py(), rows.column(_FEED)[at].as_py() or ""


def _precedes(rows: pa.Table, others: pa.Table) -> bool:
    return _place(rows, rows.num_rows - 1) <= _place(others, 0)


def _is_run(rows: pa.Table) -> bool:
    """Return whether arrival and sequence alone determine the rows' order; equal pairs leave it open."""
    arrival, sequence = (rows.column(name).to_numpy() for name in (ARRIVAL, SEQUENCE))
    later = arrival[1:] > arrival[:-1]
    return bool((later | ((arrival[1:] == arrival[:-1]) & (sequence[1:] > sequence[:-1]))).all())


class ScanStep:
    """The step from a stream's rows, with the system column, to the messages for the first stage.

    Each routing sends its rows once for all queries, with the columns that they read; with all columns if the stream
    `keeps_late` rows. Each shard also gets the bounds of all feeds and the newest arrival, so a batch runs either all
    shards or none.
    """

    def __init__(
        self,
        commands: Callable[[], Command],
        plans: HostPlans,
        stream: str,
        given: TimeFormat = UTC_TIMES,
        *,
        keeps_late: bool = False,
    ) -> None:
        self._commands = commands
        self._plans = plans
        self.stream = stream
        self._given = given  # of event times that are dates or numbers
        self._keeps_late = keeps_late

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan, lane = self._plans(self._commands().version), LANE.get()
        newest = None if lane == "every" else self._held(plan)
        if newest is not None and (lane == "newest" or not plan.readers(self.stream)[1]):
            stream = plan.stream(self.stream)
            NEWEST.set((stream.key, stream.event_time))
        came = False
        try:
            for table in some_at_once(batches):
                came = True
                yield on_deep_stack(functools.partial(self._scanned, table, plan, newest, lane))
        finally:
            NEWEST.set(None)  # the next task of the process may have other readers, or none that sets it
        if came and newest is not None:
            for rows in some_at_once(iter(newest.newest().to_batches())):
                yield on_deep_stack(functools.partial(self._sent, rows, plan, newest=True))

    def _held(self, plan: HostPlan) -> NewestSoFar[pa.Table] | None:
        """Return the place for the newest rows of a task; None if no routing needs only these."""
        stream = plan.stream(self.stream)
        if not plan.readers(self.stream)[0]:
            return None
        return NewestSoFar(lambda parts: supersede(pa.concat_tables(parts), stream), lambda rows: rows.num_rows)

    def _scanned(
        self, table: pa.Table, plan: HostPlan, newest: NewestSoFar[pa.Table] | None, lane: Lane
    ) -> pa.RecordBatch:
        out = Outbox(plan.slots)
        rows, punctuation = split_punctuation(table)
        rows = self._with_instants(rows, plan)
        if lane != "newest":
            self._send(out, rows, plan, newest=False)
        if newest is not None:
            times = rows.column(plan.stream(self.stream).event_time)
            if times.null_count:  # late: each counts
                self._send(out, rows.filter(times.is_null()), plan, newest=True)
            timed = rows.filter(times.is_valid()) if times.null_count else rows
            newest.add(supersede(timed, plan.stream(self.stream)))
        bounds = self._bounds(punctuation, plan)
        arrival = int(micros(table, "arrival").max(initial=0))
        most = self._newest(rows, plan)
        out.put_to_all(control_of("scan", stream=self.stream, bounds=bounds, arrival=arrival, newest=most))
        return out.batch()

    def _sent(self, rows: pa.Table, plan: HostPlan, *, newest: bool) -> pa.RecordBatch:
        out = Outbox(plan.slots)
        self._send(out, rows, plan, newest=newest)
        return out.batch()

    def _send(self, out: Outbox, rows: pa.Table, plan: HostPlan, *, newest: bool) -> None:
        routes = [each for each in plan.routes.get(self.stream, {}).values() if each.newest == newest]
        if rows.num_rows == 0 or not routes:
            return
        names = plan.stream(self.stream).schema.names
        read = [frozenset(names) if self._keeps_late else each.columns for each in routes]
        sent = as_sent(rows, [name for name in names if any(name in each for each in read)])
        for route, columns in zip(routes, read, strict=True):
            own = [name for name in sent.column_names if name in columns or name not in names]
            _route(out, rows, sent.select(own), route, plan.shards)

    def _with_instants(self, rows: pa.Table, plan: HostPlan) -> pa.Table:
        """Return rows in which an event time of dates or numbers is instants where queries have instants."""
        stream = plan.stream(self.stream)
        at = rows.schema.get_field_index(stream.event_time)
        if at < 0 or rows.schema.field(at).type == stream.schema.field(stream.event_time).type:
            return rows
        times = times_as(event_time_us(rows.column(at), *self._given), TIMESTAMP, None)
        return rows.set_column(at, rows.schema.field(at).with_type(TIMESTAMP), times)

    def _newest(self, rows: pa.Table, plan: HostPlan) -> int | None:
        """Return the largest event time of some rows; None if they have none."""
        stream = plan.stream(self.stream)
        if not stream.event_time or rows.num_rows == 0:
            return None
        newest = int(event_time_us(rows.column(stream.event_time), None, "UTC").max())
        return None if newest == NO_TIME else newest

    def _bounds(self, punctuation: pa.Table, plan: HostPlan) -> dict[str, int]:
        """Return the bounds by feed. Punctuation of single keys is ignored, since queries cannot use it."""
        stream = plan.stream(self.stream)
        if not stream.event_time or punctuation.num_rows == 0:
            return {}
        others = [name for name in punctuation.column_names if name not in (SYSTEM, stream.event_time)]
        whole = punctuation.filter(pa.array(~key_mask(punctuation, others)))
        feeds = pc.fill_null(system_field(whole, "source").cast(pa.string()), "").to_pylist()
        found: dict[str, int] = {}
        bounds = bounds_in(whole.column(stream.event_time), lambda times: event_time_us(times, *self._given))
        for feed, bound in zip(feeds, bounds.tolist(), strict=True):
            found[feed] = max(bound, found.get(feed, bound))
        return found


def _route(out: Outbox, rows: pa.Table, sent: pa.Table, route: PlacedRoute, shards: int) -> None:
    """Put some rows, in the form in which they are sent, into the outbox, by the shards of a route."""
    control = control_of("rows", stream=route.stream.name, routing=route.name)
    if route.shard is not None:
        out.put(route.shard, control, to_frame(sent))
        return
    # Not of what is sent, which has other numbers; text costs a conversion, so none but what the shard depends on.
    frame = pl.from_arrow(rows.select(sorted(frozenset[str]().union(*map(fields, route.by)))))
    assert isinstance(frame, pl.DataFrame)
    try:
        shard = shards_of(frame, route.by, route.stream.schema, shards)
    except FAILURES as error:
        out.put_to_all(control_of("unroutable", routing=route.name, reason=reason_of(error)))
        return
    for number, part in by_number(sent, shard, shards):
        out.put(number, control, to_frame(part))


def shards_of(frame: pl.DataFrame, by: Sequence[Expression], schema: pa.Schema, shards: int) -> np.ndarray:
    """Return the shard of each row by the values of some expressions."""
    columns = [computed(each, schema).series(frame, f"__by{number}") for number, each in enumerate(by)]
    return slots_of(columns, shards)


def supersede(rows: pa.Table, stream: Stream) -> pa.Table:
    """Return the newest row of each key of a stream, with the first arrival of those that it supersedes.

    All rows have an event time. The newest row is that of :class:`~..operators.relations.newest.NewestByArrival` after
    :func:`in_order`. A superseded row shares its fate: a row that is quarantined counts once for all of its key.
    """
    codes, size = key_codes(columns_at(rows, stream.key)) if stream.key else (np.zeros(rows.num_rows, np.int64), 1)
    arrivals = micros(rows, "arrival")

    def ties() -> Iterator[Int64s]:
        yield pc.fill_null(system_field(rows, "seq"), 0).to_numpy()
        yield arrivals
        yield places([system_field(rows, "source")])

    firsts = micros(rows, "first_arrival", arrivals)
    newest = NewestPerKey(codes, size, ordered(rows.column(stream.event_time)), firsts, 1, ties())
    if len(newest.rows) == rows.num_rows:
        return rows
    first = pa.array(newest.first_arrival_us).view(TIMESTAMP)
    return with_system_fields(rows.take(pa.array(newest.rows)), first_arrival=first)


_Options = tuple[tuple[str, str], ...]


def stored_rows(
    routes: Iterable[PlacedRoute], shard: int, shards: int, storage: Mapping[str, str]
) -> dict[str, Callable[[], pl.DataFrame]]:
    """Return a reader of the shard's rows for each stored relation among routes.

    Each row is in one shard: the same expressions route it as the streams' rows that it joins. A reader raises
    FeedChangedError if the version no longer exists.
    """
    options = tuple(sorted(storage.items()))
    stored = [each for each in routes if each.stream.static]
    return {each.stream.name: functools.partial(_of_shard, each, shard, shards, options) for each in stored}


def _of_shard(route: PlacedRoute, shard: int, shards: int, storage: _Options) -> pl.DataFrame:
    frame = _rows(route.stream, storage)
    if route.shard is not None:
        return frame if route.shard == shard else frame.clear()
    mine = shards_of(frame, route.by, route.stream.schema, shards) == shard
    return frame[np.flatnonzero(mine)]


@functools.lru_cache(maxsize=2)  # a worker runs several shards of a batch, one after another
def _rows(relation: Stream, storage: _Options) -> pl.DataFrame:
    table = relation.table
    assert table is not None, "a stored relation of the registry has a table"
    frame = pl.from_arrow(
        rows_at(
            table.location,
            dict(storage),
            relation.schema,
            Version(table.id, table.version),
            f"let queries read the table as it is now: refresh the relation '{relation.name}', then activate them",
        )
    )
    assert isinstance(frame, pl.DataFrame)
    return frame
