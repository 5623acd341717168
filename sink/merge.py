"""Which rows of a batch, and which of the table, are the newest of their keys.

Order is (time, seq): of two rows with one key the later time stays, and on equal times the later arrival. Without a time
column the later arrival stays. Payload columns are never looked at: they are moved as they are by Arrow's own take and concat.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import MalformedRowError
from ..conf.names import spark_name
from ..frames.bounds import beginning
from ..frames.columns import columns_at, null_rows
from ..frames.conflicts import ties_within
from ..frames.latest_table import NOTHING_YET, SEQ
from ..frames.newest import NewestPerKey, key_codes
from ..frames.order import ordered
from ..frames.system import SYSTEM, deleted_mask, punctuation_mask
from ..frames.text import rows_without_text
from .conflicts import lost_within
from .files import conform
from .keeping import newest_of_each
from .layout import Layout

if TYPE_CHECKING:
    from .outputs import Aside

__all__ = [
    "UNKNOWN",
    "Contest",
    "Incoming",
    "Pending",
    "as_pending",
    "bound_values",
    "concat_pending",
    "contest",
    "later_bound",
    "seq_in_order",
]

Int64s = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

UNKNOWN = int(np.iinfo(np.int64).max)
"""What stands for an arrival that a row does not tell."""

_NO_SEQ = int(np.iinfo(np.int64).min)
_MOST_SEQ = 1 << 62
# Rows, and their size, taken before they are coalesced. Bounds a task's memory by this much beyond one row per key.
_COALESCE_AT = 2_000_000
_COALESCE_BYTES = 256 << 20


def _nowhere(rows: Pending) -> None:
    del rows


class _Arrived(NamedTuple):
    """Keys and times in the order of arrival; `order` has the rows' positions, None where they lie so."""

    codes: Int64s
    size: int
    time: Int64s | None
    order: Int64s | None


@dataclasses.dataclass
class Pending:
    """Rows of a batch with what they stand for.

    Attributes
    ----------
    rows : pyarrow.Table
        In the schema of the data files.
    arrival_us, first_arrival_us : int64 arrays of length rows, or None
        None where the rows carry no system column.
    covered : int64 array of length rows
    deleted : bool array of length rows, or None
        Which rows are tombstones; None where none is.
    """

    rows: pa.Table
    arrival_us: Int64s | None
    first_arrival_us: Int64s | None
    covered: Int64s
    deleted: Mask | None = None

    def take(self, positions: Int64s) -> Pending:
        """Some of the rows."""
        return self._of(self.rows.take(pa.array(positions)), positions)

    def chosen(self, chosen: Mask) -> Pending:
        """The rows that are chosen, as they lie. Unlike :meth:`take` it is for rows of any size: a column may hold more than 2 GB of text."""
        return self._of(self.rows.filter(pa.array(chosen)), chosen)

    def slice(self, start: int, end: int) -> Pending:
        """The rows from `start` up to `end`."""
        return self._of(self.rows.slice(start, end - start), slice(start, end))

    def _of(self, rows: pa.Table, which: Any) -> Pending:
        return Pending(
            rows,
            None if self.arrival_us is None else self.arrival_us[which],
            None if self.first_arrival_us is None else self.first_arrival_us[which],
            self.covered[which],
            None if self.deleted is None else self.deleted[which],
        )

    def newest(self, layout: Layout, lost: Callable[[Pending], None] = _nowhere) -> Pending:
        """The newest row of each key, standing for all of the key's rows; or what else the table keeps of them.

        Parameters
        ----------
        layout
            Of the table.
        lost
            Is given the rows that lost in a conflict.
        """
        if self.rows.num_rows == 0 or layout.keep.count is None:
            return self
        arrived = self._arrived(layout)
        if arrived.time is not None and layout.keep.count > 1:
            return self._newest_of_each(arrived, layout, lost)
        codes, size, time, order = arrived
        first, covered = self.first_arrival_us, self.covered
        if order is not None:
            covered = covered[order]
            first = None if first is None else first[order]
        best = NewestPerKey(codes, size, time, 0 if first is None else first, covered)
        if time is not None and len(best.rows) < len(codes):
            self._tell(ties_within(codes, size, time, best.rows), arrived, layout, lost)
        rows, first_arrival, covered = best.rows, best.first_arrival_us, best.covered
        if order is not None:
            rows = order[rows]
            place = np.argsort(rows)
            rows, first_arrival, covered = rows[place], first_arrival[place], covered[place]
        if len(rows) == self.rows.num_rows:
            kept = self
        else:
            chosen = np.zeros(self.rows.num_rows, dtype=np.bool_)
            chosen[rows] = True
            kept = self.chosen(chosen)
        return dataclasses.replace(kept, first_arrival_us=None if first is None else first_arrival, covered=covered)

    def _newest_of_each(self, arrived: _Arrived, layout: Layout, lost: Callable[[Pending], None]) -> Pending:
        """Several rows of a key: each stands for itself, since each is to be seen."""
        codes, _, time, order = arrived
        deleted = np.zeros(len(codes), dtype=np.bool_) if self.deleted is None else self.deleted
        deleted = deleted if order is None else deleted[order]
        assert time is not None
        kept = newest_of_each(codes, time, np.arange(len(codes)), deleted, layout.keep.count or 1)
        self._tell(kept.ties, arrived, layout, lost)
        chosen = kept.stays
        if order is not None:
            chosen = np.empty_like(kept.stays)
            chosen[order] = kept.stays
        return self.chosen(chosen)

    def _tell(self, ties: Int64s, arrived: _Arrived, layout: Layout, lost: Callable[[Pending], None]) -> None:
        """Of pairs in the order of arrival, give away the rows that lost in a conflict."""
        conflicting = lost_within(self, ties if arrived.order is None else arrived.order[ties], layout)
        if conflicting is not None:
            lost(conflicting)

    def _arrived(self, layout: Layout) -> _Arrived:
        codes, size = key_codes(columns_at(self.rows, layout.key))
        time = None if layout.time is None else ordered(self.rows.column(layout.time))
        order = self._arrival_order(layout)
        if order is not None:
            codes = codes[order]
            time = None if time is None else time[order]
        return _Arrived(codes, size, time, order)

    def _arrival_order(self, layout: Layout) -> Int64s | None:
        """Positions in the order of arrival; None where the rows lie in it."""
        seq = seq_of(self.rows)
        if layout.time is None and self.arrival_us is not None:
            return np.lexsort((seq, self.arrival_us))
        if bool(np.all(seq[1:] >= seq[:-1])):
            return None
        return np.argsort(seq, kind="stable")


class Incoming:
    """Gathers the rows that a task is given, apart from punctuation.

    Parameters
    ----------
    layout, schema
        The table's layout and the schema of its data files.
    aside
        Takes copies of late rows and the rows that lose in a conflict; None if nobody asks for them.
    base
        Is added to the numbers of the rows.

    Attributes
    ----------
    lost : callable
        Is to be given rows that lose in a conflict.
    rows, updates : int
        Rows taken so far, and how many updates they stand for.
    bounds : dict of str to int, float, str or None
        Per feed the latest bound that its punctuation gave, in the terms of the time column; None when it says that the feed ended,
        :data:`~upstream.frames.latest_table.NOTHING_YET` when it says only that the feed is there.
    kept : (int, int)
        Rows, and their bytes, that were left when it last coalesced what it holds.
    highest : int
        Number of a row, with the base; -1 if none has one.
    """

    def __init__(self, layout: Layout, schema: pa.Schema, aside: Aside | None = None, base: int = 0) -> None:
        self._layout = layout
        self._base = base
        self.highest = -1
        self._aside = aside
        self.lost = _nowhere if aside is None else aside.lost
        self._schema = schema
        self._parts: list[Pending] = []
        self._held = self._bytes = 0
        self.kept = (0, 0)
        self.rows = 0
        self.updates = 0
        self.bounds: dict[str, Any] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take one batch as Spark gives it.

        Raises
        ------
        MalformedRowError
            A row's key or time is null, or its time is not a number; it deletes a key where all rows are kept; or its number is too high.
        """
        table = pa.Table.from_batches([batch])
        system = table.column(SYSTEM) if SYSTEM in table.column_names else None
        if system is not None:
            marks = punctuation_mask(table)
            if pc.any(marks).as_py():
                self._punctuate(table.filter(marks))
                table = table.filter(pc.invert(marks))
                system = table.column(SYSTEM)
        if table.num_rows == 0:
            return
        self.rows += table.num_rows
        if self._aside is not None and self._aside.looks_at_text:
            table = self._text_only(table, self._aside)
            system = None if system is None else table.column(SYSTEM)
        part = self._part(table, system)
        _check_rows(part, self._layout)
        if system is not None and self._aside is not None:
            self._aside.look(part.rows, system, part.deleted)
        self.updates += int(part.covered.sum())
        self._parts.append(part)
        self._held += table.num_rows
        self._bytes += part.rows.nbytes
        if self._held >= self.kept[0] + _COALESCE_AT or self._bytes >= self.kept[1] + _COALESCE_BYTES:
            self._hold([self._newest()])

    def drain(self) -> Pending:
        """The newest row of each key since this was last asked; they are held no more."""
        newest = self._newest()
        self._hold([])
        return newest

    def _newest(self) -> Pending:
        if not self._parts:
            return Pending(self._schema.empty_table(), None, None, np.empty(0, dtype=np.int64))
        return concat_pending(self._parts).newest(self._layout, self.lost)

    def _hold(self, parts: list[Pending]) -> None:
        self._parts = parts
        self._held = sum(part.rows.num_rows for part in parts)
        self._bytes = sum(part.rows.nbytes for part in parts)
        self.kept = (self._held, self._bytes)

    def _text_only(self, table: pa.Table, aside: Aside) -> pa.Table:
        """The rows whose text is UTF-8; the others are put aside, whatever else they lack."""
        names = [name for name in self._schema.names if name in table.column_names]
        wrong = rows_without_text(table.select(names))
        if not wrong.any():
            return table
        others = table.filter(pa.array(wrong))
        system = others.column(SYSTEM) if SYSTEM in others.column_names else None
        part = self._part(others, system)
        aside.no_text(part.rows, system, part.deleted)
        return table.filter(pa.array(~wrong))

    def _part(self, table: pa.Table, system: pa.ChunkedArray | None) -> Pending:
        if system is None:
            return dataclasses.replace(as_pending(conform(table, self._schema)), deleted=self._deleted(table))
        with_seq = table.append_column(SEQ, self._numbered(pc.struct_field(system, ["seq"])))
        first = _int64s(
            pc.coalesce(pc.struct_field(system, ["first_arrival"]), pc.struct_field(system, ["arrival"])), UNKNOWN
        )
        arrival = _int64s(pc.struct_field(system, ["arrival"]), UNKNOWN)
        return Pending(
            conform(with_seq, self._schema),
            arrival,
            first,
            _int64s(pc.struct_field(system, ["covered"]), 1),
            self._deleted(table),
        )

    def _numbered(self, seq: pa.ChunkedArray) -> pa.ChunkedArray:
        highest = pc.max(seq).as_py()
        if highest is not None:
            self.highest = max(self.highest, highest + self._base)
        if self.highest >= _MOST_SEQ:
            raise MalformedRowError(
                f"a row is numbered {highest} by {SYSTEM}.seq, after {self._base} that the table has had of other checkpoints",
                expected=f"together less than {_MOST_SEQ}",
                hint=f"keep {SYSTEM} as the source made it; or write to a new table",
            )
        return pc.add(seq, self._base) if self._base else seq

    def _deleted(self, table: pa.Table) -> Mask | None:
        """Which rows are tombstones, by the system column or the column that the user named; None if none is."""
        marks: list[pa.ChunkedArray | pa.Array] = [deleted_mask(table)] if SYSTEM in table.column_names else []
        if self._layout.delete_when is not None:
            marks.append(pc.fill_null(table.column(self._layout.delete_when), False))
        if not any(pc.any(mark).as_py() for mark in marks):
            return None
        return np.logical_or.reduce([mark.to_numpy(zero_copy_only=False) for mark in marks])

    def _punctuate(self, table: pa.Table) -> None:
        if self._layout.progress_time is None:
            return
        # With its key set, punctuation speaks for that key alone.
        whole = np.ones(table.num_rows, dtype=np.bool_)
        for column in columns_at(table, self._layout.key):
            whole &= column.is_null().to_numpy()
        table = table.filter(pa.array(whole))
        times = table.column(self._layout.progress_time)
        sources = pc.fill_null(pc.struct_field(table.column(SYSTEM), ["source"]), "").to_pylist()
        for source, bound in zip(sources, bound_values(times), strict=True):
            self.bounds[source] = later_bound(self.bounds.get(source, bound), bound)


def as_pending(rows: pa.Table) -> Pending:
    """Rows of which only the columns are known."""
    return Pending(rows, None, None, np.ones(rows.num_rows, dtype=np.int64))


def concat_pending(parts: Sequence[Pending]) -> Pending:
    """Rows of several tasks or batches as one. Arrival is known only where all of them know it."""
    if len(parts) == 1:
        return parts[0]
    arrivals = [part.arrival_us for part in parts if part.arrival_us is not None]
    firsts = [part.first_arrival_us for part in parts if part.first_arrival_us is not None]
    marked = any(part.deleted is not None for part in parts)
    marks = [np.zeros(len(part.covered), np.bool_) if part.deleted is None else part.deleted for part in parts]
    return Pending(
        pa.concat_tables([part.rows for part in parts]),
        np.concatenate(arrivals) if len(arrivals) == len(parts) else None,
        np.concatenate(firsts) if len(firsts) == len(parts) else None,
        np.concatenate([part.covered for part in parts]),
        np.concatenate(marks) if marked else None,
    )


@dataclasses.dataclass(frozen=True)
class Contest:
    """How a batch's rows compare with those that are held.

    Attributes
    ----------
    rival : int64 array of length new rows
        Position of the held row with the same key; -1 where there is none.
    won : bool array of length new rows
        Which are newer than their rival, or have none.
    tied : bool array of length new rows
        Which have a rival of the same time.
    """

    rival: Int64s
    won: Mask
    tied: Mask

    def stays(self, count: int, won: Mask | None = None) -> Mask:
        """Which of the `count` held rows have no rival that won (by this contest, unless told)."""
        stays = np.ones(count, dtype=np.bool_)
        stays[self.rival[(self.rival >= 0) & (self.won if won is None else won)]] = False
        return stays


def contest(held: pa.Table, new: pa.Table, layout: Layout) -> Contest:
    """Compare rows that are held with the newest rows of a batch.

    Parameters
    ----------
    held, new
        The key, time and `_upstream_seq` columns of both, each with at most one row for each key.
    """
    count = held.num_rows
    won, tied = np.ones(new.num_rows, dtype=np.bool_), np.zeros(new.num_rows, dtype=np.bool_)
    if count == 0:
        return Contest(np.full(new.num_rows, -1, dtype=np.int64), won, tied)
    pairs = zip(columns_at(held, layout.key), columns_at(new, layout.key), strict=True)
    codes, size = key_codes([pa.chunked_array([*one.chunks, *other.chunks], one.type) for one, other in pairs])
    position = np.full(size, -1, dtype=np.int64)
    position[codes[:count]] = np.arange(count)
    rival = position[codes[count:]]
    met = np.flatnonzero(rival >= 0)
    if layout.time is not None and len(met):
        old_time = ordered(held.column(layout.time))[rival[met]]
        new_time = ordered(new.column(layout.time))[met]
        old_seq, new_seq = seq_of(held)[rival[met]], seq_of(new)[met]
        # A batch without the system column does not know the order of arrival: it came after what is held.
        tied[met] = new_time == old_time
        won[met] = (new_time > old_time) | (tied[met] & ((new_seq == _NO_SEQ) | (new_seq >= old_seq)))
    return Contest(rival, won, tied)


def seq_of(table: pa.Table) -> Int64s:
    """The arrival order of rows; the least number where it is not known."""
    return _int64s(table.column(SEQ), _NO_SEQ)


def seq_in_order(table: pa.Table, held: int) -> Int64s:
    """As :func:`seq_of`, of rows of which the first are held: one that comes without a number came after what is held."""
    seq = seq_of(table).copy()
    seq[held:][seq[held:] == _NO_SEQ] = UNKNOWN
    return seq


def bound_values(times: pa.ChunkedArray) -> list[Any]:
    """Punctuation's bounds as JSON values that compare as the times do: ISO text of one width, or numbers.

    None for null, and :data:`NOTHING_YET` where a feed has rows and nothing is known of it.
    """
    least = beginning(times.type)
    return [
        NOTHING_YET if begun else value
        for begun, value in zip(pc.equal(times, least).to_pylist(), _values(times), strict=True)
    ]


def _values(times: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(times.type):
        ending = "Z" if times.type.tz else ""
        instants = np.datetime_as_string(times.to_numpy().astype("datetime64[us]"), unit="us")
        return [None if text == "NaT" else f"{text}{ending}" for text in instants.tolist()]
    if pa.types.is_date(times.type):
        return [None if day is None else day.isoformat() for day in times.to_pylist()]
    # Beyond all numbers lies the end of the feed.
    return [
        None if value is None or (isinstance(value, float) and not np.isfinite(value)) else value
        for value in times.to_pylist()
    ]


def later_bound(one: Any, other: Any) -> Any:
    """The later of two bounds of one feed; None, which says that the feed has ended, is later than all."""
    if one is None or other is None:
        return None
    if NOTHING_YET in (one, other):
        return other if one == NOTHING_YET else one
    return max(one, other)


def _int64s(column: pa.ChunkedArray, missing: int) -> Int64s:
    numbers = column.cast(pa.int64()) if column.type != pa.int64() else column
    return (pc.fill_null(numbers, missing) if numbers.null_count else numbers).to_numpy()


def _check_rows(part: Pending, layout: Layout) -> None:
    rows = part.rows
    if part.deleted is not None and layout.keep.count is None:
        raise MalformedRowError(
            f"{int(part.deleted.sum())} of {rows.num_rows} rows delete their keys, and the table keeps all rows",
            expected="no deletions with keep=all: nothing ever leaves the table",
            hint="filter such rows out before writing, or write a table with keep=latest",
        )
    for name, column in zip(layout.key, columns_at(rows, layout.key), strict=True):
        if nulls := int(np.count_nonzero(null_rows(column))):
            raise MalformedRowError(
                f"{nulls} of {rows.num_rows} rows have a null in the key column {name!r}",
                expected="a key in every row; only punctuation rows have none",
                hint=f'filter such rows out before writing, for example .where("{spark_name(name, rows.column_names)} IS NOT NULL OR `{SYSTEM}`.punctuation")',
            )
    if layout.time is None:
        return
    times = rows.column(layout.time)
    unusable = times.null_count or (pa.types.is_floating(times.type) and pc.sum(pc.is_nan(times)).as_py())
    if unusable:
        raise MalformedRowError(
            f"{unusable} of {rows.num_rows} rows have no usable time in the column {layout.time!r}",
            expected="a time in every row",
            hint=f'filter such rows out before writing, for example .where("`{layout.time}` IS NOT NULL")',
        )
