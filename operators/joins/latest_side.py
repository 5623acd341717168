"""One side of a join of newest rows in a batch."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.rows.exact_integers import Int64s
from ...core.rows.system_column import SYSTEM, deleted_mask
from ..runtime.arrivals import micros
from ..runtime.pack import newest_rows
from .arriving import as_schema, numbers_of, without_key
from .expiry import Expiry
from .forgetting import ALIVE, TIME, Forgetting
from .key_runs import KeyRuns
from .latest_plan import GONE, VERSION, LatestSide
from .side import NUMBER
from .versions import newer_versions, places, row_times

__all__ = ["ARRIVAL", "FIRST", "NewestSide", "kept_schema"]

Mask = npt.NDArray[np.bool_]

ARRIVAL, FIRST = "__upstream_arrival", "__upstream_first"
"""Columns of kept rows: their last and first arrival, in microseconds."""

_DELETED = "__upstream_deleted"


class NewestSide:
    """One side in a batch: its former rows, their changes, and its current rows.

    Arriving rows have versions from an earlier stage, or get them here where a key cannot move. `forgetting` must
    already have the batch's punctuation.

    `numbers` are the numbers of the `on` values of rows that arrive or may expire. `keyless` are rows with a null in
    `on`. `keyless_left` are tombstones of such rows, whose keys have moved or are deleted. `same`, `new` and `removed`
    are the rows that stay, arrive, and leave. `fresh` masks new rows whose key had no row with these values of `on`.
    `gone` has the former rows of deleted keys.
    """

    def __init__(self, side: LatestSide, runs: KeyRuns, rows: pa.Table, forgetting: Forgetting, expiry: Expiry) -> None:
        self._side = side
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
        self._found = found = self._runs.find(numbers)
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
        # Removed rows keep their former values, with the version and the arrival of the row that removes them.
        removed = deleted & before
        was, cause = kept.take(pa.array(at[removed])), rows.filter(pa.array(removed))
        for name in (VERSION, ARRIVAL, FIRST):
            was = was.set_column(was.schema.get_field_index(name), name, cause.column(name))
        if side.stays:
            over = self._expiry.leaving(kept, stays, self._forgetting)
            stays &= ~over
            was = pa.concat_tables([was, *self._expired(kept.filter(pa.array(over)))])
        self.removed = was.combine_chunks()
        if side.stays:
            self.gone = self.removed
        there = ~deleted
        self.fresh = ~before[there]
        rows = as_schema(rows, kept.schema)
        self.new = rows if there.all() else rows.filter(pa.array(there)).combine_chunks()
        # A deleted key that has no versions elsewhere is kept with the time of its deletion.
        self._changed = rows if side.stays else self.new
        alive = stays & _flags(kept, ALIVE) if side.stays else stays
        self.same = kept.filter(pa.array(alive)).combine_chunks()

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
        self._runs.replace(self._found, self._stays, self._changed)
        if self._side.ttl is not None and self._side.stays:
            changed = self._changed
            self._expiry.add(changed.column(NUMBER).to_numpy(), changed.column(TIME).to_numpy())

    @cached_property
    def now(self) -> pa.Table:
        return pa.concat_tables([self.same, self.new]).combine_chunks()


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
