"""The newest row of each key, with its version, as a join of newest rows takes it."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import MalformedRowError
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import ordered
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array, system_field, with_system_fields
from ...core.watermark.bounds import bounds_in
from ..runtime.feeds import ENDED, FeedBounds, key_mask
from ..runtime.pack import micros, newest_rows
from ..state.entries import PANE
from ..state.key_runs import Found, KeyRuns, PlaceRanges, UInt64s, key_places, row_places
from ..state.runs import RunFiles, Runs
from ..state.store import Store
from .latest_plan import GONE, VERSION, LatestSide
from .side import NUMBER, as_schema, numbers_of, without_key

TIME, ALIVE = "__upstream_time", "__upstream_alive"
"""Columns of kept rows: the time that orders a key's rows, and a flag that is false for a deleted key."""

ARRIVAL, FIRST = "__upstream_arrival", "__upstream_first"
"""Columns of kept rows: their last and first arrival, in microseconds."""

_DELETED = "__upstream_deleted"


class DeletionRetention:
    """The retention of one side's deleted keys in a shard, and the side's low-watermark.

    `floor` is the greatest version of a forgotten key: a key that returns must get a greater one. `heard_us` is the
    arrival of the last punctuation that counts.
    """

    def __init__(self, side: LatestSide, saved: Any) -> None:
        self._side = side
        self._feeds = FeedBounds(saved.get("feeds"))
        self.floor = int(saved.get("floor", 0))
        self.heard_us = int(saved.get("heard_us", 0))
        low = None if side.retention is None else self._feeds.low_watermark
        # A batch's own punctuation counts from the next batch on.
        self._below = LOWEST if low is None or side.retention is None else max(low - side.retention, LOWEST)

    def to_json(self) -> dict[str, Any]:
        return {"feeds": self._feeds.to_json(), "floor": self.floor, "heard_us": self.heard_us}

    def hear(self, punctuation: pa.Table) -> None:
        """Raise the bounds of the side's input partitions. Punctuation of single keys does not count."""
        side = self._side
        if not side.hears or side.event_time is None or not punctuation.num_rows:
            return
        rows = punctuation.filter(pa.array(~key_mask(punctuation, [*side.on, *side.key])))
        if rows.num_rows:
            self.heard_us = max(self.heard_us, int(micros(rows, "arrival").max()))
            at = bounds_in(rows.column(side.event_time), ordered)
            self._feeds.hear(system_field(rows, "source").to_pylist(), at.tolist())

    @property
    def passed(self) -> int | None:
        """The low-watermark of the input partitions that have not ended.

        None if it is unknown, or if all have ended: the last rows then stay.
        """
        bounds = [bound for bound in self._feeds.bounds.values() if bound != ENDED]
        return min(bounds) if bounds and self._feeds.low_watermark is not None else None

    def over(self, rows: pa.Table) -> Mask:
        """Return which kept rows, with :data:`TIME` and :data:`ALIVE`, are deletions past their retention."""
        if self._below == LOWEST:
            return np.zeros(rows.num_rows, dtype=np.bool_)
        alive = pc.fill_null(rows.column(ALIVE), True).to_numpy()
        return ~alive & (pc.fill_null(rows.column(TIME), 0).to_numpy() < self._below)

    def forget(self, rows: pa.Table) -> Mask:
        """Return which kept rows can be dropped, and raise `floor` to their greatest version."""
        over = self.over(rows)
        if over.any():
            self.floor = max(self.floor, int(rows.column(VERSION).to_numpy()[over].max()))
        return over


class Expiry:
    """The expiry of one side's newest rows in a shard, with an entry by time for each key.

    A row expires when the low-watermark has passed its time by `ttl`; None for never. A batch reads only the entries
    that are due. `rows` counts expired rows, including those that arrived too late to be kept.
    """

    def __init__(self, store: Store, name: str, ttl: int | None, saved: Any) -> None:
        self._ttl = ttl
        self._due = Runs(store, f"{name}_due", saved.get("due") or (), 1)
        self._begun = saved.get("due") is not None
        self._below = int(saved.get("below", LOWEST))
        self._taken = self._below
        self.rows = int(saved.get("rows", 0))
        if ttl is None and self._begun:
            self._due.drop_below(HIGHEST)
            self._begun = False

    def to_json(self) -> dict[str, Any]:
        due = {"due": self._due.known} if self._begun else {}
        return {**due, "below": self._below, "rows": self.rows} if self._begun or self._below > LOWEST else {}

    @property
    def bytes(self) -> int:
        return self._due.bytes

    def due(self, forgetting: DeletionRetention, runs: KeyRuns) -> Int64s:
        """Advance to the side's low-watermark, and return the numbers of keys that may have an expired row.

        `forgetting` must already have the batch's punctuation. On first use, the rows that are kept in `runs` get
        entries.
        """
        if self._ttl is None:
            return np.empty(0, dtype=np.int64)
        if not self._begun:
            self._begun = True
            if runs.rows:
                rows = runs.find_all().rows
                self.add(rows.column(NUMBER).to_numpy(), rows.column(TIME).to_numpy())
            self._taken = LOWEST
        passed = forgetting.passed
        if passed is not None:
            self._below = max(self._below, passed - self._ttl)
        if self._below <= self._taken:
            return np.empty(0, dtype=np.int64)
        found = [table.column(NUMBER).to_numpy() for table in self._due.tables(self._taken, self._below - 1)]
        self._due.drop_below(self._below)
        self._taken = self._below
        return np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.int64)

    def arriving(self, rows: pa.Table, times: Int64s) -> tuple[pa.Table, Int64s]:
        """Return the arriving rows that have not expired yet, and their times. Call :meth:`due` first."""
        over = times < self._below
        if self._ttl is None or not over.any():
            return rows, times
        self.rows += int(np.count_nonzero(over))
        return rows.filter(pa.array(~over)).combine_chunks(), times[~over]

    def leaving(self, kept: pa.Table, remains: Mask, forgetting: DeletionRetention) -> Mask:
        """Return which kept rows expire, and count them; `remains` masks the rows that no newer one replaces.

        This raises the floor of `forgetting`, so that a key that returns gets a greater version than its tombstone.
        """
        if self._ttl is None or not kept.num_rows:
            return np.zeros(kept.num_rows, dtype=np.bool_)
        over = remains & (kept.column(TIME).to_numpy() < self._below)
        if over.any():
            forgetting.floor = max(forgetting.floor, int(kept.column(VERSION).to_numpy()[over].max()) + 1)
            self.rows += int(np.count_nonzero(over & kept.column(ALIVE).to_numpy()))
        return over

    def add(self, numbers: Int64s, times: Int64s) -> None:
        """Add entries for rows that are kept from now on, by the numbers of their keys."""
        if self._begun and len(numbers):
            self._due.add(pa.table({PANE: times, NUMBER: numbers}))


class LatestVersions:
    """The keys of one side in a shard, with the compared columns of their newest rows."""

    def __init__(self, store: Store, name: str, side: LatestSide, saved: Any, files: RunFiles | None = None) -> None:
        self._side = side
        self._columns = list(dict.fromkeys([*side.key, *side.on, *(side.values or ())]))
        self._compared = side.on if side.values is None else (*side.on, *side.values)
        fields = [side.schema.field(each) for each in self._columns]
        own = [pa.field(each, pa.int64()) for each in (NUMBER, VERSION, TIME)]
        self._schema = pa.schema([*fields, *own, pa.field(ALIVE, pa.bool_())])
        self._forgetting = DeletionRetention(side, saved)
        self._runs = KeyRuns(store, name, self._schema, saved, files, self._forgetting.forget)
        self._expiry = Expiry(store, name, side.ttl, saved.get("expiry", {}))

    def to_json(self) -> dict[str, Any]:
        expiry = self._expiry.to_json()
        return {**self._runs.to_json(), **self._forgetting.to_json(), **({"expiry": expiry} if expiry else {})}

    @property
    def rows(self) -> int:
        """The number of keys, deleted ones included."""
        return self._runs.rows

    @property
    def bytes(self) -> int:
        return self._runs.bytes + self._expiry.bytes

    def compact(self) -> None:
        """Drop stored rows that newer ones have replaced."""
        self._runs.compact()

    @property
    def expired(self) -> int:
        return self._expiry.rows

    def hear(self, punctuation: pa.Table) -> None:
        """Take a batch's punctuation, before its rows."""
        self._forgetting.hear(punctuation)

    def clear(self) -> None:
        self._runs.clear()

    def changes(self, rows: pa.Table) -> pa.Table:
        """Return the keys' new newest rows and tombstones of former ones, with :data:`VERSION` and :data:`GONE`.

        Rows may be in any order, and those older than their key's newest are dropped. If a key moves from some partners
        to others, a tombstone has the former values of `on`.
        """
        side, expiry = self._side, self._expiry
        due = expiry.due(self._forgetting, self._runs)
        if rows.num_rows == 0 and not len(due):
            return side.versioned.empty_table()
        rows, _ = newest_rows(rows, list(side.key), side.event_time)
        rows = rows.combine_chunks()
        times = row_times(rows, side)
        rows, times = expiry.arriving(rows, times)
        numbers = numbers_of(rows, side.key)
        found = self._runs.find(key_places(np.concatenate([numbers, due]) if len(due) else numbers))
        kept = found.rows
        at = places(kept, rows, side.key)
        known = at >= 0
        was = np.where(known, at, 0)
        version, newer, before = newer_versions(kept, at, times, self._forgetting)
        deleted = deleted_mask(rows).to_numpy()
        same = before & _same(kept, was, rows, self._compared)
        moved = before & newer & (deleted | ~same)
        left = self._left(kept, was[moved], rows.filter(pa.array(moved)), version[moved], deleted[moved])
        # A row whose values are those of the row before it changes nothing where only values count.
        stays = pa.array(newer & ~deleted & (~same if side.values is not None else True))
        given = rows.filter(stays)
        given = given.append_column(VERSION, pa.array(version).filter(stays))
        given = given.append_column(GONE, pa.array(np.zeros(given.num_rows, dtype=np.bool_)))
        remains = np.ones(kept.num_rows, dtype=np.bool_)
        remains[at[known & newer]] = False
        over = expiry.leaving(kept, remains, self._forgetting)
        remains &= ~over
        own = {NUMBER: numbers[newer], VERSION: version[newer], TIME: times[newer], ALIVE: ~deleted[newer]}
        columns = rows.filter(pa.array(newer))
        new = pa.table({**{name: columns.column(name) for name in self._columns}, **own}).cast(self._schema)
        self._runs.replace(found, remains, new, key_places(numbers[newer]))
        expiry.add(numbers[newer], times[newer])
        return pa.concat_tables([left, given.cast(side.versioned), *self._expired(kept.filter(pa.array(over)))])

    def _expired(self, rows: pa.Table) -> list[pa.Table]:
        """Return tombstones for keys whose newest row has expired."""
        rows = rows.filter(rows.column(ALIVE))
        if not rows.num_rows:
            return []
        zeros = np.zeros(rows.num_rows, dtype=np.int64)
        arrival = np.full(rows.num_rows, self._forgetting.heard_us)
        gone = np.ones(rows.num_rows, dtype=np.bool_)
        schema = self._side.versioned
        columns: dict[str, Any] = {name: pa.nulls(rows.num_rows, schema.field(name).type) for name in schema.names}
        columns |= {name: rows.column(name) for name in self._columns}
        columns[SYSTEM] = system_array(source="", seq=zeros, arrival_us=arrival, deleted=gone)
        columns |= {VERSION: rows.column(VERSION).to_numpy() + 1, GONE: gone}
        return [pa.table(columns).select(schema.names).cast(schema)]

    def _left(self, kept: pa.Table, at: Int64s, rows: pa.Table, version: Int64s, gone: Any) -> pa.Table:
        """Return tombstones with the former values of keys, for the places that they leave."""
        side = self._side
        former = kept.take(pa.array(at))
        columns: dict[str, Any] = {
            name: pa.nulls(rows.num_rows, side.schema.field(name).type) for name in side.schema.names
        }
        columns |= {name: former.column(name) for name in self._columns}
        marked = with_system_fields(rows, deleted=pa.array(np.ones(rows.num_rows, dtype=np.bool_)))
        columns |= {SYSTEM: marked.column(SYSTEM), VERSION: pa.array(version), GONE: pa.array(gone)}
        return pa.table({name: columns[name] for name in side.versioned.names}).cast(side.versioned)


def row_times(rows: pa.Table, side: LatestSide) -> Int64s:
    """Return the times that order a key's rows, all equal if only the arrival counts; refuse a row without a time."""
    name = side.event_time
    if name is None:
        return np.full(rows.num_rows, LOWEST, dtype=np.int64)
    column = rows.column(name)
    if column.null_count:
        raise MalformedRowError(
            f"{column.null_count} of {len(column)} rows have no time in {name!r}, so none is newer than another",
            expected="a time in each row",
            hint="take such rows out before the join, and count them",
        )
    return ordered(column).astype(np.int64, copy=False)


def newer_versions(
    kept: pa.Table, at: Int64s, times: Int64s, forgetting: DeletionRetention
) -> tuple[Int64s, Mask, Mask]:
    """Return arriving rows' versions, which of them are newer than the kept ones, and which of their keys had a row.

    `at` is the result of :func:`places`. Any row is newer than a deletion past its retention in `forgetting`.
    """
    known = at >= 0
    if not kept.num_rows:
        return np.full(len(at), forgetting.floor + 1, dtype=np.int64), ~known, known
    was = np.where(known, at, 0)
    version = np.where(known, kept.column(VERSION).to_numpy()[was], forgetting.floor) + 1
    newer = ~known | (times >= kept.column(TIME).to_numpy()[was]) | forgetting.over(kept)[was]
    return version, newer, known & kept.column(ALIVE).to_numpy()[was]


def places(kept: pa.Table, rows: pa.Table, key: tuple[str, ...]) -> Int64s:
    """Return the position of each row's key among the kept rows, whose keys differ; -1 if it is absent."""
    codes, size = key_codes(
        [
            pa.chunked_array([*kept.column(name).chunks, *rows.column(name).chunks], rows.column(name).type)
            for name in key
        ]
    )
    place = np.full(size, -1, dtype=np.int64)
    place[codes[: kept.num_rows]] = np.arange(kept.num_rows)
    return place[codes[kept.num_rows :]]


def _same(kept: pa.Table, at: Int64s, rows: pa.Table, names: tuple[str, ...]) -> Mask:
    """Return which rows have the values of the kept rows in some columns; a null equals a null."""
    if kept.num_rows == 0:
        return np.zeros(rows.num_rows, dtype=np.bool_)
    found = np.ones(rows.num_rows, dtype=np.bool_)
    for name in names:
        if pa.types.is_nested(rows.column(name).type):  # Arrow does not compare these
            return np.zeros(rows.num_rows, dtype=np.bool_)
        one, two = kept.column(name).take(pa.array(at)), rows.column(name)
        equal = pc.fill_null(pc.equal(one, two), False).to_numpy()
        found &= equal | (one.is_null().to_numpy() & two.is_null().to_numpy())
    return found


class NewestSide:
    """One side in a batch: its former rows, their changes, and its current rows.

    Arriving rows have versions from an earlier stage, or get them here where a key cannot move. `forgetting` must
    already have the batch's punctuation.

    `numbers` are the numbers of the `on` values of rows that arrive or may expire. `keyless` are rows with a null in
    `on`. `keyless_left` are tombstones of such rows, whose keys have moved or are deleted. `same`, `new` and `removed`
    are the rows that stay, arrive, and leave. `fresh` masks new rows whose key had no row with these values of `on`.
    `replaced` has the former rows of the others, or with `by_on`, where only these values decide which rows meet, the
    new ones. `gone` has the former rows of deleted keys.
    """

    def __init__(
        self,
        side: LatestSide,
        runs: KeyRuns,
        rows: pa.Table,
        forgetting: DeletionRetention,
        expiry: Expiry,
        *,
        by_on: bool,
    ) -> None:
        self._side = side
        self._by_on = by_on
        self._runs = runs
        self._forgetting = forgetting
        self._expiry = expiry
        due = expiry.due(forgetting, runs) if side.stays else np.empty(0, dtype=np.int64)
        if side.stays and rows.num_rows:
            rows, _ = newest_rows(rows, list(side.key), side.event_time)
            if side.ttl is not None:
                rows, _ = expiry.arriving(rows, row_times(rows, side))
        keyless = without_key(rows, side.on)
        rows = _kept(rows.combine_chunks())
        self.keyless = self.keyless_left = rows.slice(0, 0)
        if keyless.any():
            deleted = _flags(rows, _DELETED)
            self.keyless = rows.filter(pa.array(keyless & ~deleted))
            self.keyless_left = rows.filter(pa.array(keyless & deleted))
        self.gone = rows.filter(pa.array(_flags(rows, GONE))) if not side.stays else rows.slice(0, 0)
        if keyless.any():
            rows = rows.filter(pa.array(~keyless)).combine_chunks()
        numbers = numbers_of(rows, side.on)
        self.numbers = np.concatenate([numbers, due]) if len(due) else numbers
        self._rows = rows.append_column(NUMBER, pa.array(numbers))

    def read(self, numbers: Int64s) -> None:
        """Read the rows with some numbers, and apply the changes."""
        side, rows = self._side, self._rows
        self._found = found = self._rows_of(numbers)
        kept = found.rows
        at = places(kept, rows, tuple(dict.fromkeys([*side.key, *side.on])))
        deleted = _flags(rows, _DELETED)
        if side.stays:
            times = row_times(rows, side)
            version, newer, before = newer_versions(kept, at, times, self._forgetting)
            for name, values in ((VERSION, version), (TIME, times), (ALIVE, ~deleted)):
                rows = rows.append_column(name, pa.array(values))
            if not newer.all():
                rows, at, deleted, before = rows.filter(pa.array(newer)), at[newer], deleted[newer], before[newer]
        else:
            before = at >= 0
        self._stays = stays = np.ones(kept.num_rows, dtype=np.bool_)
        stays[at[at >= 0]] = False
        was = _former_rows(kept, at, rows, deleted & before)
        if side.stays:
            over = self._expiry.leaving(kept, stays, self._forgetting)
            stays &= ~over
            was = pa.concat_tables([was, *self._expired(kept.filter(pa.array(over)))])
        self.removed = was.combine_chunks()
        if side.stays:
            self.gone = self.removed
        there = ~deleted
        self.fresh = ~before[there]
        replaced = None if self._by_on else _former_rows(kept, at, rows, there & before).combine_chunks()
        rows = as_schema(rows, kept.schema)
        self.new = rows if there.all() else rows.filter(pa.array(there)).combine_chunks()
        self.replaced = self.new.filter(pa.array(~self.fresh)) if replaced is None else replaced
        # A deleted key that has no versions elsewhere is kept with the time of its deletion.
        self._changed = rows if side.stays else self.new
        alive = stays & _flags(kept, ALIVE) if side.stays else stays
        self.same = kept.filter(pa.array(alive)).combine_chunks()

    def _rows_of(self, numbers: Int64s) -> Found:
        if self._side.one:
            return self._runs.find(key_places(numbers))
        return self._runs.find_between(PlaceRanges.of_keys(numbers).disjoint())

    def _places(self, rows: pa.Table) -> UInt64s:
        numbers = rows.column(NUMBER).to_numpy()
        return key_places(numbers) if self._side.one else row_places(numbers, numbers_of(rows, self._side.key))

    def _expired(self, rows: pa.Table) -> list[pa.Table]:
        """Return expired rows as removed ones, with their next version and the arrival of the last punctuation."""
        rows = rows.filter(rows.column(ALIVE))
        if not rows.num_rows:
            return []
        since = np.full(rows.num_rows, self._forgetting.heard_us)
        own = {VERSION: rows.column(VERSION).to_numpy() + 1, ARRIVAL: since, FIRST: since}
        for name, values in own.items():
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), pa.array(values))
        return [rows]

    def keep(self) -> None:
        """Write the current rows to the state."""
        self._runs.replace(self._found, self._stays, self._changed, self._places(self._changed))
        if self._side.ttl is not None and self._side.stays:
            changed = self._changed
            self._expiry.add(changed.column(NUMBER).to_numpy(), changed.column(TIME).to_numpy())

    @cached_property
    def now(self) -> pa.Table:
        return pa.concat_tables([self.same, self.new]).combine_chunks()

    @cached_property
    def remaining(self) -> pa.Table:
        """The former rows of the keys that stay with their values of `on`."""
        return pa.concat_tables([self.same, self.replaced]).combine_chunks()

    @cached_property
    def successors(self) -> Int64s:
        """The positions in `now` of the rows that follow the `remaining` ones."""
        n = self.same.num_rows
        return np.concatenate([np.arange(n), n + np.flatnonzero(~self.fresh)])

    @cached_property
    def before(self) -> pa.Table:
        return pa.concat_tables([self.remaining, self.removed]).combine_chunks()

    @cached_property
    def leaving(self) -> pa.Table:
        """The former rows that may lose their partners."""
        return self.removed if self._by_on else pa.concat_tables([self.removed, self.replaced]).combine_chunks()


def _former_rows(kept: pa.Table, at: Int64s, rows: pa.Table, which: Mask) -> pa.Table:
    """Return former rows, with the version and the arrival of the rows that replace or remove them."""
    was, cause = kept.take(pa.array(at[which])), rows.filter(pa.array(which))
    for name in (VERSION, ARRIVAL, FIRST):
        was = was.set_column(was.schema.get_field_index(name), name, cause.column(name))
    return was


def kept_schema(side: LatestSide) -> pa.Schema:
    """Return the columns of a side's kept rows."""
    fields = [field for field in side.schema if field.name != SYSTEM]
    own = [*(ARRIVAL, FIRST, VERSION, NUMBER), *((TIME,) if side.stays else ())]
    alive = [pa.field(ALIVE, pa.bool_())] if side.stays else []
    return pa.schema([*fields, *(pa.field(name, pa.int64()) for name in own), *alive])


def _kept(rows: pa.Table) -> pa.Table:
    """Replace the rows' system column by their arrivals and a flag of deletion."""
    arrival = micros(rows, "arrival")
    first, deleted = micros(rows, "first_arrival", arrival), deleted_mask(rows)
    rows = rows.drop_columns([SYSTEM])
    for name, values in ((ARRIVAL, pa.array(arrival)), (FIRST, pa.array(first)), (_DELETED, deleted)):
        rows = rows.append_column(name, values)
    return rows


def _flags(rows: pa.Table, name: str) -> Mask:
    column = rows.column(name)
    return (pc.fill_null(column, False) if column.null_count else column).to_numpy()
