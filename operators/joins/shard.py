"""One shard of a join: frames of both sides, packed by the tasks, in; results and one punctuation out."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.reports import JoinReport
from ...core.pushdown.source_steps import ArrowStep
from ...core.rows.columns import columns_at
from ...core.rows.exact_integers import LOWEST, Int64s, Mask
from ...core.rows.frames import by_bucket, some_at_once, split_punctuation, to_frame
from ..runtime.feeds import ENDED, RaisedBounds, named
from ..runtime.pack import by_arrival, check_keys, micros, newest_rows, packed
from ..runtime.shard import Shard, ShardInput
from ..state.runs import RunFiles
from ..state.store import Store
from .band import LEFT, RIGHT, SIDES, STANDS_STILL, cut_time, over_limit
from .latest_plan import LatestSide
from .pair_kernel import SortedRows, equal_keys, matches, sorted_rows
from .pairs import NewestPairs, Pairs, pair_condition, superseded, supersedes
from .plan import JoinPlan, check_columns, columns_to_json
from .release.choice import Mode
from .release.ordered_release import InputColumns, ReleaseBuffer
from .side import (
    NUMBER,
    ROW,
    JoinProgress,
    KeptSide,
    as_sent,
    checked_rows,
    checked_times,
    numbers_of,
    received,
    rows_in,
    without_key,
)

Batches = Iterator[pa.RecordBatch]


def join_pack(on: Sequence[str], slots: Sequence[int], side: str, *, whole: bool) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs a task's rows into frames for shards by `on`.

    `side` is the input's name, which marks each frame and precedes the names of input partitions. `slots` has Spark's
    grouping number of each shard. With `whole`, rows keep their whole system column, and the shards check them.
    Otherwise rows are :func:`~upstream.operators.joins.side.as_sent`. A row with a null in `on` goes to some shard,
    which counts it.
    """

    def run(batches: Batches) -> Batches:
        for table in some_at_once(named(side)(batches) if whole else batches):
            rows, punctuation = split_punctuation(table if whole else as_sent(table, side))
            found: list[tuple[int, bytes]] = []
            if rows.num_rows:
                for number, part in by_bucket(rows, on, len(slots)):
                    found.append((number, to_frame(pa.concat_tables([part, punctuation]))))
            if punctuation.num_rows:
                # Each shard gets the punctuation of every feed, whether it has rows or not.
                alone, reached = to_frame(punctuation), {number for number, _ in found}
                found += [(number, alone) for number in range(len(slots)) if number not in reached]
            batch = packed(found, slots)
            yield batch.set_column(2, "control", pa.array([side] * batch.num_rows, pa.string()))

    return run


def latest_pack(
    by: Sequence[str],
    slots: Sequence[int],
    side: str,
    key: Sequence[str] = (),
    event_time: str | None = None,
    *,
    punctuation: bool = False,
) -> Callable[[Batches], Batches]:
    """Return a function for ``mapInArrow`` that packs one side of a join of newest rows for shards by some columns.

    It packs only the newest row of each key in a task; without a `key`, all rows. With `punctuation`, all shards get
    the punctuation; otherwise it is dropped.
    """

    def run(batches: Batches) -> Batches:
        for table in some_at_once(batches):
            rows, bounds = split_punctuation(table)
            found: list[tuple[int, bytes]] = []
            if rows.num_rows:
                if key:
                    check_keys(rows, key, "join")
                    rows, _ = newest_rows(rows, key, event_time)
                found = [(number, to_frame(part)) for number, part in by_bucket(rows, by, len(slots))]
            if punctuation and bounds.num_rows:
                alone = to_frame(bounds)
                found += [(number, alone) for number in range(len(slots))]
            if not found:
                continue
            batch = packed(found, slots)
            yield batch.set_column(2, "control", pa.array([side] * batch.num_rows, pa.string()))

    return run


def newest_pack(side: LatestSide, slots: Sequence[int], name: str) -> tuple[list[str], ArrowStep]:
    """Return the columns that shards by `on` take of a side, and the step that packs them.

    The rows come from the stage of versions, unless the shards find the versions themselves.
    """
    if not side.stays:
        return side.versioned.names, latest_pack(side.on, slots, name, (), side.event_time)
    return side.schema.names, own_pack(side, side.on, slots, name)


def own_pack(side: LatestSide, by: Sequence[str], slots: Sequence[int], name: str) -> ArrowStep:
    """Return the step that packs a side's own rows for shards by some columns, which find the versions."""
    return latest_pack(by, slots, name, side.key, side.event_time, punctuation=side.hears)


class _SideArrivals(NamedTuple):
    """A batch's rows of one side: those with a key, sorted, those without one, and the punctuation."""

    rows: SortedRows
    keyless: pa.Table
    punctuation: pa.Table

    @property
    def numbers(self) -> Int64s:
        return self.rows.table.column(ROW).to_numpy()


class JoinShard(Shard[JoinPlan, JoinReport]):
    """A shard of a join by time: frames of both sides in, results and one punctuation out.

    `late` are results that are too late for the order of time. `clock` returns seconds, for the cost of comparing rows.
    """

    began = "the state of the join in this checkpoint was written"
    same = "inputs, columns and number of shards"
    report = JoinReport
    counted = (
        *("left_rows", "right_rows", "left_late", "right_late", "results", "unmatched", "without_key"),
        *("left_superseded", "right_superseded", "left_shed", "right_shed", "left_unsure", "right_unsure"),
    )

    def __init__(
        self,
        number: int,
        plan: JoinPlan,
        store: Store,
        files: RunFiles | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        super().__init__(number, plan, store, files)
        self._progress = JoinProgress(plan.sides, self._head, self._store, number, plan.shards)
        self._kept = [
            KeptSide(self._store, name, side, plan.band.segment, self._head.get(name, {}), whole=plan.takes_whole(at))
            for at, (name, side) in enumerate(zip(SIDES, plan.sides, strict=True))
        ]
        self._newest = NewestPairs(self._store, plan, self._head.get("newest", ())) if plan.output == "latest" else None
        self._condition = pair_condition(plan)
        self._supersedes = [supersedes(plan, side) for side in (LEFT, RIGHT)]
        self._release = self._ordered_release(clock)
        if self._head:
            waiting, queued = (0, (0, 0)) if self._release is None else (self._release.held, self._release.queued)
            rows = [kept.rows + queue + waiting for kept, queue in zip(self._kept, queued, strict=True)]
            check_columns(plan.sides, self._head["columns"], rows)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Join new rows with kept ones and each other, and return results, then punctuation.

        Rows meet first, then the batch's punctuation counts, then rows are kept and dropped. In the order of time,
        punctuation first decides which rows enter. The control changes the shard's way to that order from this batch
        on.
        """
        plan = self._plan
        new = [self._arrived(side, frames) for side, frames in ((LEFT, given.left), (RIGHT, given.right))]
        for each in new:
            self._advance_clock((each.rows.table, each.punctuation))
        now_us, release = self._now_us, self._release
        bounds: list[int] = []
        if release is not None:
            # Waiting rows have not met yet, so the own bound of their key does not count.
            bounds = self._heard(new, single=False)
            new, bounds = self._entering(release, new, bounds, now_us, cast("Mode | None", given.control))
        pairs = Pairs(plan)
        met = [np.zeros(len(each.rows.times), dtype=np.bool_) for each in new]
        self._join(new, met, pairs)
        if release is None:
            bounds = self._heard(new)
        else:
            release.compared()
        promised = max(self._progress.promised, plan.promise(*bounds))
        for side in (LEFT, RIGHT):
            self._keep(side, new[side], met[side], bounds[1 - side], pairs)
        results = pairs.table(self._number, self._seq)
        if self._newest is not None:
            results = self._newest.filtered(results, promised)
        if plan.state_limit is not None:
            self._stay_below(plan.state_limit // plan.shards, bounds)
        if release is not None:
            results = release.leave(results, self._progress.promised, promised)
            self.late = release.late
        self._seq += pairs.rows
        self._counts["results"] += results.num_rows
        leaving = [results] if results.num_rows else []
        leaving += self._progress.promise(promised, plan.schema, plan.time, now_us)
        leaving += self._progress.promise_keys(plan.promises, plan.key, plan.schema, plan.time, now_us)
        return (pa.concat_tables(leaving) if leaving else None), self._figures(bounds)

    def _heard(self, new: list[_SideArrivals], *, single: bool = True) -> list[int]:
        """Take the batch's punctuation, with `single` also that of single keys, and return both bounds."""
        for side, each in enumerate(new):
            self._progress.hear(side, each.punctuation, single=single)
        return [self._progress.bound(side) for side in (LEFT, RIGHT)]

    def _ordered_release(self, clock: Callable[[], float]) -> ReleaseBuffer | None:
        """Return the release of results in the order of time; None if they leave in any order."""
        plan = self._plan
        if plan.release is None:
            return None
        inputs = [
            InputColumns(name, pa.schema([*side.schema, (ROW, pa.int64()), (NUMBER, pa.int64())]), side.time)
            for name, side in zip(SIDES, plan.sides, strict=True)
        ]
        saved = self._head.get("release", {})
        return ReleaseBuffer(plan.release, self._store, inputs, plan.schema, plan.time, saved, clock)

    def _entering(
        self, release: ReleaseBuffer, new: list[_SideArrivals], bounds: list[int], now_us: int, mode: Mode | None
    ) -> tuple[list[_SideArrivals], list[int]]:
        """Return the rows that enter the join in this batch, and the bounds of those that enter later."""
        tables, bounds = release.enter([each.rows.table for each in new], bounds, now_us, mode)
        entering: list[_SideArrivals] = []
        for each, side, table in zip(new, self._plan.sides, tables, strict=True):
            rows = each.rows
            if table is not rows.table:
                numbers, times = table.column(NUMBER).to_numpy(), checked_times(table, side.time)
                rows = sorted_rows(numbers, times, table.combine_chunks())
            entering.append(each._replace(rows=rows))
        release.compare([len(each.rows.times) for each in entering], [kept.rows for kept in self._kept])
        return entering, bounds

    def _join(self, new: list[_SideArrivals], met: list[Mask], pairs: Pairs) -> None:
        """Find all pairs with a new row, and mark kept rows that meet their first partner."""
        plan = self._plan
        for side in (LEFT, RIGHT):
            probe, other = new[side].rows, 1 - side
            if not len(probe.times):
                continue
            least, greatest = plan.band.partners(side, probe.times)
            least = np.maximum(least, self._kept[other].kept_from)
            least = np.maximum(least, self._kept_from(other, side, probe))
            arrival = micros(probe.table, "arrival") if plan.retracts else None
            for rows in self._kept[other].between(int(least.min()), int(greatest.max())):
                touched = np.zeros(len(rows.times), dtype=np.bool_)
                since = None if arrival is None else np.zeros(len(rows.times), dtype=np.int64)
                for at, there in self._matches(side, probe, least, greatest, rows):
                    met[side][at] = True
                    touched[there] = True
                    if arrival is not None and since is not None:
                        np.maximum.at(since, there, arrival[at])
                    if not plan.left_alone:
                        pairs.add(*((probe, at, rows, there) if side == LEFT else (rows, there, probe, at)))
                if plan.marks(other) and touched.any():
                    self._touched(other, rows, touched, pairs, since)
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
        """Yield the pairs of a side's rows and others that have equal keys, are in time, and meet the condition."""
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

    def _touched(self, side: int, rows: SortedRows, touched: Mask, pairs: Pairs, since: Int64s | None) -> None:
        """Mark kept rows that have met a new one, and emit or retract those that have met their first.

        A semi join emits these. Rows that were emitted early without a partner are retracted: `since` has the arrivals
        of their partners.
        """
        at = np.flatnonzero(touched)
        numbers, times = rows.table.column(ROW).to_numpy()[at], rows.times[at]
        first = ~self._kept[side].have_met(numbers, times)
        if not first.any():
            return
        self._kept[side].mark(numbers[first], times[first])
        if self._plan.how == "semi":
            pairs.add_left(rows.table.take(pa.array(at[first])))
        if since is not None and self._plan.gives_unmatched(side):
            self._counts["unmatched"] -= int(np.count_nonzero(first))
            pairs.take_back(side, rows.table.take(pa.array(at[first])), since[at[first]])

    def _keep(self, side: int, new: _SideArrivals, met: Mask, bound: int, pairs: Pairs) -> None:
        """Keep the rows that may still meet others, drop the rest, and emit rows that can no longer find a partner."""
        plan, kept = self._plan, self._kept[side]
        unmatched = plan.gives_unmatched(side)
        kept_from = max(kept.kept_from, plan.band.kept_from(side, bound))
        if unmatched and not plan.early:
            self._give_unmatched(side, kept.leaving(kept_from), pairs)
        kept.drop_below(kept_from)
        raised = self._progress.raised(1 - side)
        if raised is not None and raised.keys.num_rows:
            self._let_go(side, raised, pairs)
        if unmatched and self._kept[1 - side].shed_to > LOWEST:
            met = self._or_unsure(side, new, met)
        stays = (new.rows.times >= kept_from) & (new.rows.times >= self._kept_from(side, side, new.rows))
        if unmatched:
            alone = ~met if plan.early else ~stays & ~met
            self._give_unmatched(side, new.rows.table.filter(pa.array(alone)), pairs)
            if plan.how == "anti":
                self._give_unmatched(side, new.keyless, pairs)
        if plan.left_alone and side == LEFT:
            stays &= ~met  # emitted, or never to be emitted
        elif plan.marks(side):
            kept.mark(new.numbers[stays & met], new.rows.times[stays & met])
        if stays.any():
            some = pa.array(stays)
            rows = SortedRows(new.rows.numbers[stays], new.rows.times[stays], new.rows.table.filter(some))
            kept.add(rows)
        if (self._supersedes[side] and kept.has_doubled) or kept.spare * 2 > kept.rows:
            kept.thin(lambda rows: self._spare(side, rows, bound))

    def _or_unsure(self, side: int, new: _SideArrivals, met: Mask) -> Mask:
        """Return `met` plus the new rows that may have met a shed row: these are never emitted without a partner."""
        least = self._plan.band.partners(side, new.rows.times)[0]
        unsure = ~met & (least < self._kept[1 - side].shed_to)
        self._counts[f"{SIDES[side]}_unsure"] += int(np.count_nonzero(unsure))
        return met | unsure

    def _bytes(self) -> int:
        return sum(kept.bytes for kept in self._kept) + (0 if self._newest is None else self._newest.bytes)

    def _stay_below(self, limit: int, bounds: Sequence[int]) -> None:
        """Drop spare rows, then the oldest, above the shard's part of the state limit, or raise StateLimitError."""
        if self._bytes() <= limit:
            return
        for side, kept in enumerate(self._kept):  # first drop rows that only wait for the end of their segment
            kept.thin(lambda rows, side=side: self._spare(side, rows, bounds[1 - side]))
        over = self._bytes()
        if over <= limit:
            return
        plan = self._plan
        assert plan.state_limit is not None
        if plan.on_limit == "drop_oldest":
            # Shed one eighth more, so that a shard at its limit does not shed in each batch.
            least = over - limit * 7 // 8
            while any(kept.rows for kept in self._kept):
                cut = cut_time([(kept.times(), kept.bytes) for kept in self._kept], plan.band.segment, least)
                for name, kept in zip(SIDES, self._kept, strict=True):
                    self._counts[f"{name}_shed"] += kept.shed(cut)
                if self._bytes() <= limit:
                    return
                least *= 2  # a value in the store has a size without rows, so bytes do not fall row by row
        raise over_limit(self._number, over, plan.left.on, plan.state_limit, plan.shards, STANDS_STILL)

    def _spare(self, side: int, rows: SortedRows, bound: int) -> Int64s:
        """Return the positions of kept rows that no result needs any more."""
        plan, kept = self._plan, self._kept[side]
        gone = rows.times < self._kept_from(side, side, rows)
        if self._supersedes[side]:
            at = superseded(rows, plan.sides[side].on, plan.exact, plan.band, side, bound)
            if plan.gives_unmatched(side):
                at = at[kept.have_met(rows.table.column(ROW).to_numpy()[at], rows.times[at])]
            self._counts[f"{SIDES[side]}_superseded"] += int(np.count_nonzero(~gone[at]))
            gone[at] = True
        return np.flatnonzero(gone)

    def _kept_from(self, side: int, of: int, rows: SortedRows) -> Int64s:
        """Return the least time of a side that can still meet a later row, by the own bound of each row's key.

        The rows that have the keys are those of the side `of`.
        """
        keys = self._progress.keys[1 - side]
        if len(keys) == 0:
            return np.array(LOWEST, dtype=np.int64)
        return self._plan.band.kept_from_each(side, keys.of(columns_at(rows.table, self._plan.sides[of].on)))

    def _let_go(self, side: int, raised: RaisedBounds, pairs: Pairs) -> None:
        """Count kept rows as spare if their key's own bound on the other side has passed them; emit unmatched ones."""
        plan, kept = self._plan, self._kept[side]
        least = np.maximum(plan.band.kept_from_each(side, raised.before), kept.kept_from)
        greatest = plan.band.kept_from_each(side, raised.after)
        some = greatest > least
        keys, least, greatest = raised.keys.filter(pa.array(some)), least[some], greatest[some] - 1
        if not keys.num_rows:
            return
        names = plan.sides[side].on, plan.sides[1 - side].on
        numbers = numbers_of(keys, names[1])
        for rows in kept.between(int(least.min()), int(greatest.max())):
            gone = np.zeros(len(rows.times), dtype=np.bool_)
            for at, there in matches(numbers, least, greatest, rows):
                if plan.exact:
                    gone[there] = True
                else:
                    same = equal_keys(keys, names[1], at, rows.table, names[0], there)
                    gone[there[same.to_numpy(zero_copy_only=False)]] = True
            kept.spare += int(np.count_nonzero(gone))
            if plan.gives_unmatched(side) and not plan.early and gone.any():
                number = rows.table.column(ROW).to_numpy()
                gone[gone] = ~kept.have_met(number[gone], rows.times[gone])
                self._give_unmatched(side, rows.table.filter(pa.array(gone)), pairs)
                kept.mark(
                    number[gone], rows.times[gone]
                )  # emitted: not to be emitted again at the end of their segment

    def _give_unmatched(self, side: int, rows: pa.Table, pairs: Pairs) -> None:
        if rows.num_rows:
            self._counts["unmatched"] += rows.num_rows
            as_it_is = self._plan.left_alone and not self._plan.early
            pairs.add_left(rows) if as_it_is else pairs.add_unmatched(side, rows)

    def _arrived(self, side: int, frames: Sequence[bytes]) -> _SideArrivals:
        """Return a side's new rows, in the order of arrival where key and time are equal."""
        plan, each = self._plan, self._plan.sides[side]
        if plan.takes_whole(side):
            rows, punctuation = rows_in(frames, each.schema)
            rows = by_arrival(checked_rows(rows))
        else:
            rows, punctuation = received(frames, each.schema)
        times = checked_times(rows, each.time)
        self._counts[f"{SIDES[side]}_rows"] += len(times)
        self._counts[f"{SIDES[side]}_late"] += self._progress.late(side, rows, times)
        first = int(self._head.get(f"{SIDES[side]}_seq", 0))
        self._head[f"{SIDES[side]}_seq"] = first + len(times)
        number = (first + np.arange(len(times), dtype=np.int64)) * plan.shards + self._number
        keyless = without_key(rows, each.on)
        rows = rows.append_column(ROW, pa.array(number))
        without = rows.filter(pa.array(keyless))
        if without.num_rows:
            self._counts["without_key"] += without.num_rows
            rows, times = rows.filter(pa.array(~keyless)), times[~keyless]
        numbers = numbers_of(rows, each.on)
        rows = rows.append_column(NUMBER, pa.array(numbers)).combine_chunks()
        return _SideArrivals(sorted_rows(numbers, times, rows), without, punctuation)

    def _needs(self, bounds: Sequence[int]) -> int | None:
        """Return the least low-watermark, in microseconds, that would release a row or a result; None if none would."""
        plan = self._plan
        if plan.unit_us is None or plan.early:
            return None
        found: list[int] = []
        for side in (LEFT, RIGHT):
            first = self._kept[side].first() if plan.gives_unmatched(side) else None
            if first is not None and bounds[1 - side] != ENDED:
                reach = plan.band.partners(side, np.array([first], dtype=np.int64))[1]
                found.append((int(reach[0]) + 1) * plan.unit_us)
        if self._release is not None:
            found += [need * plan.unit_us for need in self._needs_of_release(self._release, bounds)]
        return min(found, default=None)

    def _needs_of_release(self, release: ReleaseBuffer, bounds: Sequence[int]) -> Iterator[int]:
        """Yield the low-watermarks, in units of the times, that release rows or results from the order of time."""
        plan, queued, held = self._plan, release.first_queued, release.first_held
        if min(bounds) == ENDED:
            return
        if queued is not None:
            yield queued
        if held is not None:
            at = np.array([held], dtype=np.int64)
            last = [plan.band.partners(side, at)[1] for side in (LEFT, RIGHT) if plan.waits_for_other(side)]
            yield max([held, *(int(each[0]) + 1 for each in last)])

    def saved(self) -> dict[str, Any]:
        self._progress.save()
        return {
            **{f"{name}_seq": self._head.get(f"{name}_seq", 0) for name in SIDES},
            "columns": columns_to_json(self._plan.sides),
            **self._progress.to_json(),
            **{name: kept.to_json() for name, kept in zip(SIDES, self._kept, strict=True)},
            "newest": [] if self._newest is None else self._newest.known,
            **({} if self._release is None else {"release": self._release.to_json()}),
        }

    def _figures(self, bounds: Sequence[int]) -> dict[str, Any]:
        release = self._release
        ordered: dict[str, Any] = {}
        if release is not None:
            names = ("held", "late_results", "comparisons", "spent_s")
            ordered = {name: getattr(release, name) for name in names}
            ordered |= {"release": release.mode, "queued": sum(release.queued), "rates": list(release.rates)}
        return {
            "left_kept": self._kept[LEFT].rows,
            "right_kept": self._kept[RIGHT].rows,
            **self._progress.figures,
            "needs": self._needs(bounds),
            **ordered,
        }
