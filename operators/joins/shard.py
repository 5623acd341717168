"""One shard of a join: a batch of frames of both sides in, results and one punctuation out.

Pure logic over a :class:`~upstream.operators.runtime.store.Store`. Spark's stateful processor, the tests and the
figures drive it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...conf.errors import CheckpointError
from ...core.feedback.join_reports import JoinReport
from ...core.pushdown.ipc_frames import from_frame
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import LOWEST, Int64s
from ...core.rows.sort_keys import in_order, ordered
from ...core.rows.split import split_punctuation
from ...core.rows.system_column import system_field
from ...core.rows.widening import covers
from ...core.watermark.bounds import bounds_in, times_of_bounds
from ..runtime.arrivals import by_arrival, micros
from ..runtime.feeds import ENDED, FeedBounds, key_mask, punctuation_rows
from ..runtime.state_head import check_identity, other_layout, read_head
from ..runtime.store import CountingStore, Store
from .arriving import checked_rows, checked_times
from .band import LEFT, RIGHT
from .matching import SortedRows, equal_keys, key_numbers, matches, sorted_rows
from .newest import NewestPairs
from .pairs import Pairs, pair_condition
from .plan import JoinPlan
from .side import NUMBER, ROW, KeptSide

__all__ = ["JoinShard"]

Mask = npt.NDArray[np.bool_]

_VERSION = 1
_SIDES = ("left", "right")
_COUNTS = ("left_rows", "right_rows", "left_late", "right_late", "results", "unmatched", "without_key")


class _Arrived(NamedTuple):
    """The rows of one side in a batch: those with a key, sorted; those without; the punctuation."""

    rows: SortedRows
    keyless: pa.Table
    punctuation: pa.Table

    @property
    def numbers(self) -> Int64s:
        """The rows' own numbers."""
        return self.rows.table.column(ROW).to_numpy()


class JoinShard:
    """One batch of one shard.

    Parameters
    ----------
    number : int
        The shard's.
    plan : JoinPlan
    store : Store
        The shard's state.

    Raises
    ------
    CheckpointError
        The state was written for another join, for other columns, or by another version.
    """

    def __init__(self, number: int, plan: JoinPlan, store: Store) -> None:
        self._number = number
        self._plan = plan
        self._store = CountingStore(store)
        self._head = read_head(store)
        self._counts: dict[str, int] = {name: self._head.get(name, 0) for name in _COUNTS}
        self._feeds = [FeedBounds(self._head.get(f"{name}_feeds")) for name in _SIDES]
        self._kept = [
            KeptSide(self._store, name, side, plan.band.segment, self._head.get(name, {}))
            for name, side in zip(_SIDES, plan.sides, strict=True)
        ]
        self._newest = NewestPairs(self._store, plan, self._head.get("newest", ())) if plan.output == "latest" else None
        self._condition = pair_condition(plan)
        if self._head:
            self._check()

    def run(
        self, left: Sequence[bytes], right: Sequence[bytes], batch_id: int = -1
    ) -> tuple[pa.Table | None, JoinReport]:
        """Join the rows that arrived with those that are kept, and with each other.

        The order inside a batch: rows meet first, then the batch's punctuation counts, then rows are kept and dropped.

        Returns
        -------
        pyarrow.Table or None
            Results, then the shard's own punctuation; None if there are neither.
        JoinReport
        """
        plan = self._plan
        new = [self._arrived(side, frames) for side, frames in ((LEFT, left), (RIGHT, right))]
        now_us = int(self._head.get("now_us", 0))
        for each in new:
            for table in (each.rows.table, each.punctuation):
                now_us = max(now_us, int(micros(table, "arrival").max(initial=0)))
        pairs = Pairs(plan)
        met = [np.zeros(len(each.rows.times), dtype=np.bool_) for each in new]
        self._join(new, met, pairs)
        for side, each in enumerate(new):
            self._hear(side, each.punctuation)
        bounds = [self._bound(side) for side in (LEFT, RIGHT)]
        before = self._promised
        promised = max(before, plan.promise(*bounds))
        for side in (LEFT, RIGHT):
            self._keep(side, new[side], met[side], bounds[1 - side], pairs)
        self._head["promised"] = promised
        results = pairs.table(self._number, int(self._head.get("seq", 0)))
        if self._newest is not None:
            results = self._newest.filtered(results, promised)
        self._head["seq"] = int(self._head.get("seq", 0)) + pairs.rows
        self._counts["results"] += results.num_rows
        given = [results] if results.num_rows else []
        if promised > before:
            given.append(self._punctuation(promised, now_us))
        self._save(now_us)
        return (pa.concat_tables(given) if given else None), self._report(batch_id, now_us, bounds)

    def _join(self, new: list[_Arrived], met: list[Mask], pairs: Pairs) -> None:
        """Find all pairs with a new row. A kept row that has met one for the first time is marked."""
        plan = self._plan
        for side in (LEFT, RIGHT):
            probe, other = new[side].rows, 1 - side
            if not len(probe.times):
                continue
            least, greatest = plan.band.partners(side, probe.times)
            least = np.maximum(least, self._kept[other].kept_from)
            for rows in self._kept[other].between(int(least.min()), int(greatest.max())):
                touched = np.zeros(len(rows.times), dtype=np.bool_)
                for at, there in self._matches(side, probe, least, greatest, rows):
                    met[side][at] = True
                    touched[there] = True
                    if not plan.left_alone:
                        pairs.add(*((probe, at, rows, there) if side == LEFT else (rows, there, probe, at)))
                if plan.marks(other) and touched.any():
                    self._touched(other, rows, touched, pairs)
        probe, rows = new[LEFT].rows, new[RIGHT].rows
        if len(probe.times) and len(rows.times):
            least, greatest = plan.band.partners(LEFT, probe.times)
            for at, there in self._matches(LEFT, probe, least, greatest, rows):
                met[LEFT][at] = True
                met[RIGHT][there] = True
                if not plan.left_alone:
                    pairs.add(probe, at, rows, there)
        if plan.how == "semi" and met[LEFT].any():
            pairs.add_left(probe.table.filter(pa.array(met[LEFT])))

    def _matches(
        self, side: int, probe: SortedRows, least: Int64s, greatest: Int64s, rows: SortedRows
    ) -> Iterator[tuple[Int64s, Int64s]]:
        """Yield the pairs of a side's rows and others: those with equal keys, in time, and with the condition true."""
        plan = self._plan
        names = [each.on for each in plan.sides]
        for at, there in matches(probe.numbers, least, greatest, rows):
            kept: pa.Array | None = None
            if not plan.exact:
                kept = equal_keys(probe.table, names[side], at, rows.table, names[1 - side], there)
            if self._condition is not None:
                one, two = (probe.table, at), (rows.table, there)
                holds = self._condition(*(one if side == LEFT else two), *(two if side == LEFT else one))
                kept = holds if kept is None else pc.and_(kept, holds)
            if kept is not None:
                mask = kept.to_numpy(zero_copy_only=False)
                if mask.any():
                    yield at[mask], there[mask]
            else:
                yield at, there

    def _touched(self, side: int, rows: SortedRows, touched: Mask, pairs: Pairs) -> None:
        """Mark kept rows that have met a new one; those of a semi join are given the first time."""
        at = np.flatnonzero(touched)
        numbers, times = rows.table.column(ROW).to_numpy()[at], rows.times[at]
        first = ~self._kept[side].have_met(numbers, times)
        if not first.any():
            return
        self._kept[side].mark(numbers[first], times[first])
        if self._plan.how == "semi":
            pairs.add_left(rows.table.take(pa.array(at[first])))

    def _keep(self, side: int, new: _Arrived, met: Mask, bound: int, pairs: Pairs) -> None:
        """Keep what may still meet a row of the other side, and let the rest go."""
        plan, kept = self._plan, self._kept[side]
        unmatched = plan.gives_unmatched(side)
        kept_from = max(kept.kept_from, plan.band.kept_from(side, bound))
        if unmatched:
            self._give_unmatched(side, kept.leaving(kept_from), pairs)
        kept.drop_below(kept_from)
        stays = new.rows.times >= kept_from
        if unmatched:
            self._give_unmatched(side, new.rows.table.filter(pa.array(~stays & ~met)), pairs)
            if plan.how == "anti":
                self._give_unmatched(side, new.keyless, pairs)
        if plan.left_alone and side == LEFT:
            stays &= ~met  # given, or never to be given
        elif plan.marks(side):
            kept.mark(new.numbers[stays & met], new.rows.times[stays & met])
        if stays.any():
            some = pa.array(stays)
            rows = SortedRows(new.rows.numbers[stays], new.rows.times[stays], new.rows.table.filter(some))
            kept.add(rows)

    def _give_unmatched(self, side: int, rows: pa.Table, pairs: Pairs) -> None:
        if rows.num_rows:
            self._counts["unmatched"] += rows.num_rows
            pairs.add_left(rows) if self._plan.left_alone else pairs.add_unmatched(side, rows)

    def _arrived(self, side: int, frames: Sequence[bytes]) -> _Arrived:
        """Return a side's rows, in the order in which they arrived where key and time are equal."""
        plan, each = self._plan, self._plan.sides[side]
        tables = [from_frame(frame).select(each.schema.names).cast(each.schema) for frame in frames]
        rows, punctuation = split_punctuation(pa.concat_tables([each.schema.empty_table(), *tables]))
        rows = by_arrival(checked_rows(rows))
        times = checked_times(rows, each.time)
        self._counts[f"{_SIDES[side]}_rows"] += len(times)
        self._counts[f"{_SIDES[side]}_late"] += int(np.count_nonzero(times < self._bound(side)))
        first = int(self._head.get(f"{_SIDES[side]}_seq", 0))
        self._head[f"{_SIDES[side]}_seq"] = first + len(times)
        number = (first + np.arange(len(times), dtype=np.int64)) * plan.shards + self._number
        columns = columns_at(rows, each.on)
        keyless = np.zeros(len(times), dtype=np.bool_)
        for column in columns:
            if column.null_count:
                keyless |= column.is_null().to_numpy()
        rows = rows.append_column(ROW, pa.array(number))
        without = rows.filter(pa.array(keyless))
        if without.num_rows:
            self._counts["without_key"] += without.num_rows
            rows, times = rows.filter(pa.array(~keyless)), times[~keyless]
        numbers = key_numbers(columns_at(rows, each.on)) if len(times) else np.empty(0, dtype=np.int64)
        rows = rows.append_column(NUMBER, pa.array(numbers)).combine_chunks()
        return _Arrived(sorted_rows(numbers, times, rows), without, punctuation)

    def _hear(self, side: int, punctuation: pa.Table) -> None:
        each = self._plan.sides[side]
        # Punctuation of one key would let go of that key's rows earlier; without it they are kept longer, that is all.
        rows = punctuation.filter(pa.array(~key_mask(punctuation, each.on)))
        if rows.num_rows:
            at = bounds_in(rows.column(each.time), ordered)
            self._feeds[side].hear(system_field(rows, "source").to_pylist(), at.tolist())

    def _bound(self, side: int) -> int:
        found = self._feeds[side].low_watermark
        return LOWEST if found is None else found

    @property
    def _promised(self) -> int:
        return int(self._head.get("promised", LOWEST))

    def _punctuation(self, promised: int, now_us: int) -> pa.Table:
        schema, time = self._plan.schema, self._plan.time
        kind = schema.field(time).type
        at = times_of_bounds([promised], kind, lambda bound: in_order(bound, kind))
        return punctuation_rows(schema, [f"join/{self._number}"], now_us, **{time: at}).cast(schema)

    def _needs(self, bounds: Sequence[int]) -> int | None:
        """Return the least low-watermark of the other side that would let go of a row without a partner."""
        plan = self._plan
        if plan.unit_us is None:
            return None
        found: list[int] = []
        for side in (LEFT, RIGHT):
            first = self._kept[side].first() if plan.gives_unmatched(side) else None
            if first is not None and bounds[1 - side] != ENDED:
                reach = plan.band.partners(side, np.array([first], dtype=np.int64))[1]
                found.append((int(reach[0]) + 1) * plan.unit_us)
        return min(found, default=None)

    def _check(self) -> None:
        check_identity(
            self._head["plan"],
            self._plan.identity(),
            "the state of the join in this checkpoint was written",
            "inputs, columns and number of shards",
            other_layout(self._head["layout"], _VERSION),
        )
        for side, name in enumerate(_SIDES):
            was = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self._head["columns"][side])))
            if self._kept[side].rows and not covers(self._plan.sides[side].schema, was):
                raise CheckpointError(
                    f"rows of the {name} with other columns are kept in this checkpoint's join: "
                    + ", ".join(f"{field.name} {field.type}" for field in was),
                    expected="the same columns, or more; now there are "
                    + ", ".join(f"{field.name} {field.type}" for field in self._plan.sides[side].schema),
                    hint="put the columns back, or start with a new checkpointLocation",
                )

    def _save(self, now_us: int) -> None:
        schemas = [each.schema.remove_metadata().serialize().to_pybytes() for each in self._plan.sides]
        head = {
            **self._head,
            **self._counts,
            "layout": _VERSION,
            "plan": self._plan.identity(),
            "columns": [base64.b64encode(each).decode() for each in schemas],
            "now_us": now_us,
            **{f"{name}_feeds": feeds.to_json() for name, feeds in zip(_SIDES, self._feeds, strict=True)},
            **{name: kept.to_json() for name, kept in zip(_SIDES, self._kept, strict=True)},
            "newest": [] if self._newest is None else self._newest.known,
        }
        self._store.put("head", 0, json.dumps(head).encode())

    def _report(self, batch_id: int, now_us: int, bounds: Sequence[int]) -> JoinReport:
        return JoinReport(
            shard=self._number,
            batch_id=batch_id,
            now_us=now_us,
            left_kept=self._kept[LEFT].rows,
            right_kept=self._kept[RIGHT].rows,
            state_bytes=self._store.written,
            bounds={feed: bound for feeds in self._feeds for feed, bound in feeds.bounds.items()},
            promised=self._promised if self._promised > LOWEST else None,
            needs=self._needs(bounds),
            **self._counts,
        )
