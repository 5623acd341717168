"""The bounds that a shard has received by punctuation and sent, of all keys and of single ones (thesis §2.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.buckets import bucket_of
from ...core.rows.columns import column_at, columns_at
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ...core.rows.frames import from_frame, to_frame
from ...core.rows.sort_keys import in_order
from ...core.rows.system_column import SYSTEM, punctuation_mask, system_array, system_field, with_system_fields
from ...core.watermark.bounds import AFTER_ALL, BEFORE_ALL, times_of_bounds
from ..state.entries import Keys, grouped
from ..state.store import Store

ENDED = AFTER_ALL
"""The bound of a feed that has ended."""


class FeedBounds:
    """The bound of each feed: all of its rows with an earlier time have arrived. Bounds never decrease."""

    def __init__(self, saved: Any = None) -> None:
        saved = saved or {}
        self._bounds: dict[str, int] = dict(saved.get("bounds", {}))
        self._promised: dict[str, int] = dict(saved.get("told", {}))

    def to_json(self) -> dict[str, Any]:
        return {"bounds": self._bounds, "told": self._promised}

    def hear(self, feeds: Iterable[str], bounds: Iterable[int]) -> None:
        """Raise the bounds of feeds by their punctuation."""
        for feed, bound in zip(feeds, bounds, strict=True):
            self._bounds[feed] = max(self._bounds.get(feed, bound), bound)

    @property
    def bounds(self) -> Mapping[str, int]:
        return self._bounds

    @property
    def low_watermark(self) -> int | None:
        """The least bound (Eq. 4.1). None before the first punctuation, and while a feed with rows has sent none."""
        least = min(self._bounds.values(), default=None)
        return None if least == BEFORE_ALL else least

    @property
    def over(self) -> frozenset[str]:
        """The feeds that have ended."""
        return frozenset(feed for feed, bound in self._bounds.items() if bound == ENDED)

    def due(self, limit: int) -> list[tuple[str, int]]:
        """Return new punctuation ``(feed, bound)`` where a bound, capped at `limit`, has risen; it counts as sent."""
        capped = [(feed, min(bound, limit)) for feed, bound in self._bounds.items()]
        due = [(feed, bound) for feed, bound in capped if bound > self._promised.get(feed, bound - 1)]
        self._promised.update(due)
        return due


def key_mask(punctuation: pa.Table, key: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return a mask of the group-wise punctuation: rows with a value in some column of `key`, for such keys alone."""
    given = np.zeros(punctuation.num_rows, dtype=np.bool_)
    for name in key:
        given |= pc.is_valid(column_at(punctuation, name)).to_numpy(zero_copy_only=False)
    return given


def without_single_keys(key: Sequence[str]) -> ArrowStep:
    """Return a step that drops group-wise punctuation, because it would be wrong for an operator with another key."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            marks = punctuation_mask(batch).to_numpy(zero_copy_only=False)
            if marks.any():
                marks = marks & key_mask(pa.Table.from_batches([batch]), key)
                yield batch.filter(pa.array(~marks)) if marks.any() else batch
            else:
                yield batch

    return run


def named(name: str) -> ArrowStep:
    """Return a step that renames an input's feeds to ``name/feed``, so that feeds of two inputs never share a name."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            source = pc.fill_null(system_field(table, "source"), "").combine_chunks()
            renamed = with_system_fields(table, source=pc.binary_join_element_wise(name, source, "/"))
            yield from renamed.combine_chunks().to_batches()

    return run


def punctuation_rows(schema: pa.Schema, feeds: Sequence[str], now_us: int, **times: pa.Array) -> pa.Table:
    """Return one punctuation row for each of `feeds`, which arrives at `now_us`.

    `schema` includes the system column. `times` holds the columns that are not null, as
    :func:`~upstream.core.watermark.bounds.times_of_bounds` returns them.
    """
    n = len(feeds)
    system = system_array(
        source="",
        seq=np.zeros(n, dtype=np.int64),
        arrival_us=np.full(n, now_us, dtype=np.int64),
        covered=np.zeros(n, dtype=np.int64),
        punctuation=True,
    )
    fields = system.flatten()
    fields[1] = pa.array(feeds, pa.string())
    columns: dict[str, pa.Array] = {each.name: pa.nulls(n, each.type) for each in schema}
    columns |= times
    columns[SYSTEM] = pa.StructArray.from_arrays(fields, fields=list(system.type)).cast(schema.field(SYSTEM).type)
    return pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in schema]))


def punctuation_at(
    schema: pa.Schema, time: str, feeds: Sequence[str], bounds: Sequence[int], now_us: int, keys: pa.Table | None = None
) -> pa.Table:
    """Return punctuation with bounds in the order of the column `time`: of all keys, or of one of `keys` each."""
    kind = schema.field(time).type
    times = times_of_bounds(bounds, kind, lambda bound: in_order(bound, kind))
    named = (
        {} if keys is None else {name: keys.column(name).cast(schema.field(name).type) for name in keys.column_names}
    )
    return punctuation_rows(schema, feeds, now_us, **named, **{time: times})


ALL_FEEDS = "<all>"
"""The feed of punctuation that covers every feed of its operator, because one shard has all rows of the key."""

_FEED, _BOUND, _WAS, _TOLD = "__upstream_feed", "__upstream_bound", "__upstream_was", "__upstream_told"


class KeyShare(NamedTuple):
    """A shard's share of the keys."""

    number: int
    shards: int
    by: tuple[str, ...]  # the columns whose hash chooses the shard

    def determined(self, keys: pa.Table) -> Mask:
        """Return a mask of the keys, null in wildcard columns, whose rows are all in one shard."""
        if not set(self.by) <= set(keys.column_names):
            return np.zeros(keys.num_rows, dtype=np.bool_)
        found = np.ones(keys.num_rows, dtype=np.bool_)
        for name in self.by:
            found &= keys.column(name).is_valid().to_numpy()
        return found

    def others(self, keys: pa.Table) -> Mask:
        """Return a mask of the keys whose rows are all in another shard."""
        found = self.determined(keys)
        if found.any():
            some = keys.filter(pa.array(found))
            found[found] = bucket_of(columns_at(some, self.by), self.shards) != self.number
        return found

    def feeds(self, keys: pa.Table, own: str) -> list[str]:
        """Return the feed of each key's punctuation: all feeds, or `own` if other shards have rows of the key."""
        return [ALL_FEEDS if alone else own for alone in self.determined(keys).tolist()]


class RaisedBounds(NamedTuple):
    """The keys whose bounds have risen, with the bounds before and after the batch."""

    keys: pa.Table  # the key's columns, null in wildcard columns
    before: Int64s
    after: Int64s


class KeyBounds:
    """Bounds of single keys. Without group-wise punctuation, it reads and writes nothing.

    Punctuation may leave some columns of the key null: it applies to every key with the values of the others. `saved`
    is the ``len`` after the last batch. With `shard`, keys of other shards are left out. `inputs` are those of a union,
    whose feeds are named ``input/feed``: a bound needs punctuation from each.
    """

    def __init__(
        self,
        store: Store,
        kind: str,
        names: Sequence[str],
        saved: int,
        shard: KeyShare | None = None,
        *,
        inputs: Sequence[str] = (),
    ) -> None:
        self._store = store
        self._kind = kind
        self._names = list(names)
        self._saved = saved
        self._shard = shard
        self._prefixes = [f"{each}/" for each in inputs] or [""]
        self._table: pa.Table | None = None
        if saved:
            frame = store.get(kind, 0)
            assert frame is not None, f"{kind} is not in the state store"
            table = from_frame(frame)
            self._table = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))

    def __len__(self) -> int:
        """Return the number of bounds: one for each key and each feed whose punctuation named it."""
        return 0 if self._table is None else self._table.num_rows

    @property
    def farthest(self) -> int:
        return LOWEST if self._table is None or not len(self) else int(self._column(self._table, _WAS).max())

    def hear(self, punctuation: pa.Table, key: Sequence[str], bounds: Int64s) -> int:
        """Add group-wise punctuation: all rows of a feed with this key and an earlier time have arrived.

        Each row of it has a value in some column of `key`, the rows' update key. Return how many rows have no effect
        here, because they name a column that these keys lack.
        """
        apart = key_mask(punctuation, [name for name in key if name not in self._names])
        keys = pa.table(columns_at(punctuation, self._names), names=self._names)
        wanted = ~apart
        if self._shard is not None:
            wanted &= ~self._shard.others(keys)
        if wanted.any():
            some = pa.array(wanted)
            more = keys.filter(some).append_column(
                _FEED, pc.fill_null(system_field(punctuation, "source"), "").filter(some)
            )
            nothing = pa.array(np.full(more.num_rows, LOWEST, dtype=np.int64))
            more = more.append_column(_BOUND, pa.array(bounds[wanted]))
            self._add(more.append_column(_WAS, nothing).append_column(_TOLD, nothing))
        return int(np.count_nonzero(apart))

    def _add(self, more: pa.Table) -> None:
        both = (
            more if self._table is None else pa.concat_tables([self._table, more.cast(self._table.schema)])
        ).combine_chunks()
        codes, first, size = grouped(both.select([*self._names, _FEED]).columns)
        owner, _, owners = grouped(both.select(self._names).columns)
        table = both.take(pa.array(first)).drop_columns([_BOUND, _WAS, _TOLD])
        table = table.append_column(_BOUND, pa.array(_greatest(self._column(both, _BOUND), codes, size)))
        for name in (_WAS, _TOLD):
            table = table.append_column(
                name, pa.array(_greatest(self._column(both, name), owner, owners)[owner[first]])
            )
        self._table = table

    def raised(
        self, feeds: Mapping[str, int], *, floor: int | None = None, endless: bool = False
    ) -> RaisedBounds | None:
        """Return the keys whose bounds have risen since the last call; None if no key has a bound of its own.

        Bounds that are no longer ahead are removed. `feeds` and `floor` are the bounds of all keys; `floor` defaults to
        the least of the feeds'. With `endless`, the end of a key is not a bound.
        """
        table = self._table
        if table is None or not len(self):
            return None
        codes, first, size = grouped(table.select(self._names).columns)
        keys = table.select(self._names).take(pa.array(first))
        wider = list(_wider(keys))
        least, further = self._least(table, codes, size, feeds, wider)
        before = _inherited(_greatest(self._column(table, _WAS), codes, size), wider)
        after = np.maximum(before, np.where(least == AFTER_ALL, before, least) if endless else least)
        whole = min(feeds.values(), default=BEFORE_ALL) if floor is None else floor
        table = table.set_column(table.schema.get_field_index(_WAS), _WAS, pa.array(after[codes]))
        self._table = table.filter(pa.array(further | (after[codes] > whole))).combine_chunks()
        changed = np.flatnonzero(after > before)
        return RaisedBounds(keys.take(pa.array(changed)), before[changed], after[changed])

    def of(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Int64s:
        """Return the bound of each row's key as of the last :meth:`raised`; LOWEST for a key without one."""
        return self._known(columns, _WAS)

    def promised(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> Int64s:
        """Return the bound that has been sent on for each row's key; LOWEST for none."""
        return self._known(columns, _TOLD)

    @property
    def entries(self) -> tuple[pa.Table, Int64s]:
        """The distinct keys, null in wildcard columns, and their bounds. There must be at least one."""
        table = self._table
        assert table is not None
        codes, first, size = grouped(table.select(self._names).columns)
        return table.select(self._names).take(pa.array(first)), _greatest(self._column(table, _WAS), codes, size)

    def least(self, columns: Sequence[pa.Array | pa.ChunkedArray], times: Int64s) -> Int64s:
        """Return the least time among the rows of each of :attr:`entries`; HIGHEST without rows."""
        keys, bounds = self.entries
        found = np.full(len(bounds), HIGHEST, dtype=np.int64)
        theirs = pa.table(
            [each.cast(own.type) for each, own in zip(columns, keys.columns, strict=True)], names=self._names
        )
        for names, at in _kinds(keys):
            both = Keys([keys.select(names).take(pa.array(at)), theirs.select(names)])
            least = np.full(both.size, HIGHEST, dtype=np.int64)
            np.minimum.at(least, both.codes[1], times)
            found[at] = least[both.codes[0]]
        return found

    def due(self, promises: Int64s, floor: int | Int64s) -> Int64s:
        """Return the positions of :attr:`entries` whose promise exceeds the last one and `floor`; it counts as sent.

        `promises` may be in any unit. `floor` is what was already sent for all keys, or for each.
        """
        table = self._table
        assert table is not None
        codes, _, size = grouped(table.select(self._names).columns)
        promised = _greatest(self._column(table, _TOLD), codes, size)
        due = np.flatnonzero((promises > promised) & (promises > floor))
        promised[due] = promises[due]
        self._table = table.set_column(table.schema.get_field_index(_TOLD), _TOLD, pa.array(promised[codes]))
        return due

    def count_as_promised(self, keys: pa.Table, promises: Int64s) -> None:
        table = self._table
        if table is None or not len(self) or not len(promises):
            return
        both = Keys(
            [table.select(self._names), keys.rename_columns(self._names).cast(table.select(self._names).schema)]
        )
        values = np.concatenate([self._column(table, _TOLD), promises])
        told = _greatest(values, np.concatenate(both.codes), both.size)[both.codes[0]]
        self._table = table.set_column(table.schema.get_field_index(_TOLD), _TOLD, pa.array(told))

    def save(self) -> int:
        """Write the bounds to the store if there are or were any, and return their number."""
        if len(self):
            assert self._table is not None
            self._store.put(self._kind, 0, to_frame(self._table))
        elif self._saved:
            self._store.remove(self._kind, 0)
        self._saved = len(self)
        return self._saved

    def _known(self, columns: Sequence[pa.Array | pa.ChunkedArray], name: str) -> Int64s:
        found = np.full(len(columns[0]), LOWEST, dtype=np.int64)
        table = self._table
        if table is None or not len(self) or not len(found):
            return found
        types = [table.schema.field(each).type for each in self._names]
        theirs = pa.table([each.cast(kind) for each, kind in zip(columns, types, strict=True)], names=self._names)
        values = self._column(table, name)
        for names, at in _kinds(table.select(self._names)):
            both = Keys([table.select(names).take(pa.array(at)), theirs.select(names)])
            found = np.maximum(found, _greatest(values[at], both.codes[0], both.size)[both.codes[1]])
        return found

    @staticmethod
    def _column(table: pa.Table, name: str) -> Int64s:
        return table.column(name).to_numpy()

    def _least(
        self,
        table: pa.Table,
        codes: Int64s,
        size: int,
        feeds: Mapping[str, int],
        wider: Sequence[tuple[Int64s, Int64s]],
    ) -> tuple[Int64s, Mask]:
        """Return the bound of each key, and a mask of the bounds that are ahead of their feed's bound for all keys."""
        named, mine = table.column(_FEED), self._column(table, _BOUND)
        claimed = set(pc.unique(named).to_pylist())
        further = np.zeros(len(mine), dtype=np.bool_)

        def own(feed: str, whole: int) -> Int64s:
            here = pc.equal(named, feed).to_numpy()
            np.logical_or(further, here & (mine > whole), out=further)
            return _inherited(_greatest(mine[here], codes[here], size), wider)

        least = np.full(size, HIGHEST, dtype=np.int64)
        for prefix in self._prefixes:
            everyone = prefix + ALL_FEEDS
            bounds = {each: BEFORE_ALL for each in claimed if each.startswith(prefix) and each != everyone}
            bounds |= {each: bound for each, bound in feeds.items() if each.startswith(prefix)}
            rest = min((bound for each, bound in bounds.items() if each not in claimed), default=HIGHEST)
            found = np.full(size, rest if bounds else LOWEST, dtype=np.int64)
            for each in sorted(claimed & bounds.keys()):
                found = np.minimum(found, np.maximum(own(each, bounds[each]), bounds[each]))
            if everyone in claimed:
                found = np.maximum(found, own(everyone, min(bounds.values(), default=BEFORE_ALL)))
            least = np.minimum(least, found)
        return least, further


def hear_all(
    punctuation: pa.Table, bounds: Int64s, key: Sequence[str], feeds: FeedBounds, keys: KeyBounds | None
) -> None:
    """Raise the bounds of input partitions and, with `keys`, of single keys, by the rows of `punctuation`."""
    single = key_mask(punctuation, key)
    named = system_field(punctuation, "source").filter(pa.array(~single))
    feeds.hear(named.to_pylist(), bounds[~single].tolist())
    if keys is not None and single.any():
        keys.hear(punctuation.filter(pa.array(single)), key, bounds[single])


def _greatest(values: Int64s, codes: Int64s, size: int) -> Int64s:
    """Return the greatest value of each code; LOWEST for a code without values."""
    found = np.full(size, LOWEST, dtype=np.int64)
    np.maximum.at(found, codes, values)
    return found


def _inherited(values: Int64s, wider: Sequence[tuple[Int64s, Int64s]]) -> Int64s:
    """Return each key's value, raised to that of any wider key that includes it."""
    found = values.copy()
    for narrow, wide in wider:
        np.maximum.at(found, narrow, values[wide])
    return found


def _kinds(keys: pa.Table) -> Iterator[tuple[list[str], Int64s]]:
    """Yield sets of columns, and the positions of the keys with values in exactly these columns."""
    given = np.stack([keys.column(name).is_valid().to_numpy() for name in keys.column_names], axis=1)
    for kind in np.unique(given, axis=0):
        names = [name for name, there in zip(keys.column_names, kind.tolist(), strict=True) if there]
        yield names, np.flatnonzero((given == kind).all(axis=1))


def _wider(keys: pa.Table) -> Iterator[tuple[Int64s, Int64s]]:
    """Yield positions of keys, and of wider keys that include them: they leave more columns null."""
    kinds = list(_kinds(keys))
    for wide, there in kinds:
        for narrow, here in kinds:
            if set(wide) < set(narrow):
                both = Keys([keys.select(wide).take(pa.array(each)) for each in (there, here)])
                place = np.full(both.size, -1, dtype=np.int64)
                place[both.codes[0]] = there
                found = place[both.codes[1]]
                yield here[found >= 0], found[found >= 0]
