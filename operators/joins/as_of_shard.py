"""Shards of joins as of a time: with final results in order, or with results at once that are revised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...core.feedback.reports import JoinReport
from ...core.rows.columns import with_nulls
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s
from ...core.rows.newest import key_codes
from ...core.rows.system_column import SYSTEM, deleted_mask, system_array
from ..runtime.feeds import ENDED
from ..runtime.pack import by_arrival, micros
from ..runtime.shard import Shard, ShardInput
from ..state.entries import PANE
from ..state.pages import KeyPages
from ..state.runs import RunFiles, Runs
from ..state.store import Store
from .band import LEFT, RIGHT, SIDES, STANDS_STILL, cut_time, over_limit, shifted, shifted_bound
from .pair_kernel import newest_matches
from .plan import AsOfPlan, check_columns, columns_to_json
from .side import NUMBER, ROW, JoinProgress, checked_rows, checked_times, numbers_of, rows_in, without_key

_TIME = "__upstream_time"


class AsOfShard(Shard[AsOfPlan, JoinReport]):
    """A shard of a join as of a time.

    A row of the left waits until the watermark of the right has passed it: then its newest row of the right is final.
    """

    began = "the state of the join in this checkpoint was written"
    same = "inputs, columns and number of shards"
    report = JoinReport
    counted = (
        "left_rows", "right_rows", "left_late", "right_late", "results", "unmatched", "without_key", "left_shed",
        "right_shed", "left_unsure",
    )  # fmt: skip

    def __init__(self, number: int, plan: AsOfPlan, store: Store, files: RunFiles | None = None) -> None:
        super().__init__(number, plan, store, files)
        head = self._head
        self._progress = JoinProgress(plan.sides, head, self._store, number, plan.shards)
        held = pa.schema([*plan.left.schema, pa.field(PANE, pa.int64())])
        self._held = Runs(self._store, "held", head.get("held", ()), 1, fit=lambda table: with_nulls(table, held))
        own = (_TIME, NUMBER, ROW) if plan.early else (_TIME, NUMBER)
        kept = pa.schema([*plan.right.schema, *(pa.field(name, pa.int64()) for name in own)])
        self._given_to = int(head.get("given", LOWEST))
        self._kept_schema = kept
        self._shed_to = int(head.get("shed_to", LOWEST))
        sized = plan.state_limit is not None
        self._kept = KeyPages(self._store, "kept", NUMBER, kept, head.get("kept", {}), sized=sized)
        if head:
            check_columns(plan.sides, head["columns"], (self._left_kept, self._kept.rows))

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return results of left rows that the right's watermark has passed, then punctuation."""
        plan = self._plan
        rows, bounds = self._taken(given)
        times = rows[LEFT].column(PANE).to_numpy()
        _, raised = (self._progress.raised(side) for side in (LEFT, RIGHT))
        # A time that is the bound itself may still come on the right.
        given_to = max(bounds[RIGHT], self._given_to)
        ready = (times < given_to) | (times < self._own_bounds(rows[LEFT]))
        # Rows that have left may remain in a run with others.
        due = [rows[LEFT].filter(pa.array(ready)), *self._held.tables(self._given_to, _before(given_to))]
        self._held.drop_below(given_to)
        if raised is not None and raised.keys.num_rows:
            due += self._let_go(given_to)
        self._held.add(rows[LEFT].filter(pa.array(~ready)))
        self._given_to = given_to
        first = self._held.first_from(self._given_to)
        needed = bounds[LEFT] if first is None else min(bounds[LEFT], first)
        result = self._given(pa.concat_tables(due).combine_chunks(), rows[RIGHT], needed, bounds[RIGHT])
        if plan.state_limit is not None:
            self._stay_below(plan.state_limit // plan.shards)
            first = self._held.first_from(self._given_to)
        needs = None if first is None or plan.unit_us is None or bounds[RIGHT] == ENDED else (first + 1) * plan.unit_us
        return self._ended(result, bounds), self._figures(needs)

    def _taken(self, given: ShardInput) -> tuple[list[pa.Table], list[int]]:
        """Return the rows of both sides that arrived, and the bounds after their punctuation."""
        rows: list[pa.Table] = []
        for side, frames in ((LEFT, given.left), (RIGHT, given.right)):
            some, punctuation = self._arrived(side, frames)
            rows.append(some)
            self._advance_clock((some, punctuation))
            self._progress.hear(side, punctuation)
        return rows, [self._progress.bound(side) for side in (LEFT, RIGHT)]

    def _ended(self, result: pa.Table, bounds: Sequence[int]) -> pa.Table | None:
        """Return the batch's results, then the shard's own punctuation."""
        plan, now_us = self._plan, self._now_us
        self._counts["results"] += result.num_rows
        given = [result] if result.num_rows else []
        given += self._progress.promise(min(bounds), plan.schema, plan.left.time, now_us)
        key = (*plan.left.key, *plan.own_key)
        given += self._progress.promise_keys(np.minimum, key, plan.schema, plan.left.time, now_us)
        return pa.concat_tables(given) if given else None

    @property
    def _left_kept(self) -> int:
        return self._held.rows

    def _figures(self, needs: int | None) -> dict[str, Any]:
        kept = {"left_kept": self._left_kept, "right_kept": self._kept.rows}
        return {**kept, **self._progress.figures, "needs": needs}

    def _own_bounds(self, left: pa.Table) -> Int64s:
        """Return the right's own bound for the key of each row of the left; `LOWEST` for a key without one."""
        return self._progress.own_bounds(RIGHT, left, self._plan.left.on)

    def _let_go(self, begin: int) -> list[pa.Table]:
        """Return the waiting rows that their key's own bound on the right has passed.

        This reads and writes all waiting rows. Rows before `begin` have left already.
        """
        held = self._held.tables(begin, HIGHEST)
        if not held:
            return []
        table = pa.concat_tables(held).combine_chunks()
        passed = pa.array(table.column(PANE).to_numpy() < self._own_bounds(table))
        due = table.filter(passed)
        if due.num_rows:
            self._held.drop_below(HIGHEST)
            self._held.add(table.filter(pc.invert(passed)))
        return [due]

    def _given(self, due: pa.Table, new: pa.Table, needed: int, bound: int) -> pa.Table:
        """Return the results of the `due` rows of the left, and keep the rows of the right that later ones may need.

        Unless they are late, later rows of the left are not before `needed`, and later rows of the right not before
        `bound`.
        """
        plan = self._plan
        keyless = without_key(due, plan.left.on)
        right, found, gone = self._found(due.filter(pa.array(~keyless)), new, needed, bound)
        partner = np.full(due.num_rows, -1, dtype=np.int64)
        partner[~keyless] = np.where(gone[found], -1, found) if len(gone) else found
        alone = partner < 0
        if self._shed_to > LOWEST:
            sure = np.ones(due.num_rows, dtype=np.bool_)
            sure[~keyless] = (found >= 0) | (self._least(due)[~keyless] >= self._shed_to)
            self._counts["left_unsure"] += int(np.count_nonzero(~sure))
            due, partner, alone = due.filter(pa.array(sure)), partner[sure], alone[sure]
        self._counts["unmatched"] += int(np.count_nonzero(alone))
        if plan.how == "inner":
            due, partner = due.filter(pa.array(~alone)), partner[~alone]
        where = pa.array(partner, mask=partner < 0)
        columns: dict[str, Any] = {
            each.name: due.column(each.source) if each.side == LEFT else right.column(each.source).take(where)
            for each in plan.columns
        }
        columns |= {name: due.column(name) for name in plan.schema.names if name not in columns}
        return pa.table({name: columns[name] for name in plan.schema.names}).cast(plan.schema)

    def _found(self, asks: pa.Table, new: pa.Table, needed: int, bound: int) -> tuple[pa.Table, Int64s, Any]:
        """Return rows of the right, the position of the newest one for each row of the left, and which are deletions.

        A position is -1 for no row. The rows of the right that later rows may need are kept.
        """
        plan = self._plan
        numbers = np.concatenate([numbers_of(asks, plan.left.on), new.column(NUMBER).to_numpy()])
        pages = self._kept.pages(numbers)
        kept = self._kept.read(pages)
        right = pa.concat_tables([kept, new]).combine_chunks()
        names = zip(plan.left.on, plan.right.on, strict=True)
        both = [pa.chunked_array([*right.column(two).chunks, *asks.column(one).chunks]) for one, two in names]
        codes, _ = key_codes(both) if right.num_rows + asks.num_rows else (np.empty(0, np.int64), 0)
        own, wanted = codes[: right.num_rows], codes[right.num_rows :]
        times = right.column(_TIME).to_numpy()
        order = np.lexsort((times, own))  # of one key and time the later arrival is last
        right, own, times = right.take(pa.array(order)).combine_chunks(), own[order], times[order]
        at = asks.column(PANE).to_numpy()
        found = newest_matches(wanted, self._least(asks), at, own, times)
        gone = deleted_mask(right).to_numpy()
        if len(numbers):
            self._kept.write(pages, kept.num_rows, right.filter(pa.array(self._stays(own, times, gone, needed, bound))))
        return right, found, gone

    def _least(self, asks: pa.Table) -> Int64s:
        """Return the least time that the partner of each row of the left may have."""
        at = asks.column(PANE).to_numpy()
        return np.full(len(at), LOWEST) if self._plan.tolerance is None else shifted(at, -self._plan.tolerance)

    def _stay_below(self, limit: int) -> None:
        """Shed the oldest rows above the shard's part of the state limit, or raise StateLimitError."""
        over = size = self._held.bytes + self._kept.bytes
        plan = self._plan
        assert plan.state_limit is not None
        # Shed one eighth more, so that a shard at its limit does not shed in each batch.
        least = size - limit * 7 // 8
        while over > limit:
            held, kept = self._held.tables(self._given_to, HIGHEST), self._kept.read(self._kept.all_pages)
            left = np.concatenate([np.empty(0, np.int64), *(table.column(PANE).to_numpy() for table in held)])
            right = kept.column(_TIME).to_numpy()
            if plan.on_limit != "drop_oldest" or not len(left) + len(right):
                raise over_limit(self._number, size, plan.left.on, plan.state_limit, plan.shards, STANDS_STILL)
            self._shed_to = max(
                self._shed_to, cut_time([(left, self._held.bytes), (right, self._kept.bytes)], 1, least)
            )
            self._shed(held, kept)
            over = self._held.bytes + self._kept.bytes
            least *= 2  # a value in the store has a size without rows, so bytes do not fall row by row

    def _shed(self, held: list[pa.Table], kept: pa.Table) -> None:
        """Drop the rows of both sides that are older than `_shed_to`."""
        rows = [table.filter(pa.array(table.column(PANE).to_numpy() >= self._shed_to)) for table in held]
        self._counts["left_shed"] += sum(table.num_rows for table in held) - sum(table.num_rows for table in rows)
        self._held.drop_below(HIGHEST)
        for table in rows:
            self._held.add(table)
        stays = kept.filter(pa.array(kept.column(_TIME).to_numpy() >= self._shed_to))
        self._counts["right_shed"] += kept.num_rows - stays.num_rows
        self._kept.write(self._kept.all_pages, kept.num_rows, stays)

    def _stays(self, own: Int64s, times: Int64s, gone: Any, needed: int, bound: int) -> Any:
        """Return which rows of the right, sorted by key and time, a later row of the left may need."""
        stays = np.ones(len(own), dtype=np.bool_)
        # If the next row of the key is at or before every time that is looked up, it is newer for all of them.
        stays[:-1] = (own[1:] != own[:-1]) | (times[1:] > needed)
        if self._plan.tolerance is not None:
            stays &= times >= shifted_bound(needed, -self._plan.tolerance)
        # Once no older row can come, a deletion that is the oldest row is the same as no row.
        first = np.ones(len(own), dtype=np.bool_)
        first[1:] = own[1:] != own[:-1]
        before = np.zeros(len(own), dtype=np.int64)
        before[1:] = np.cumsum(stays)[:-1]
        begins = np.maximum.accumulate(np.where(first, np.arange(len(own)), 0))
        oldest = (before - before[begins]) == 0
        return stays & ~(gone & oldest & (times < min(needed, bound)))

    def _arrived(self, side: int, frames: Sequence[bytes]) -> tuple[pa.Table, pa.Table]:
        """Return a side's rows as they are kept, and the punctuation."""
        each = self._plan.sides[side]
        rows, punctuation = rows_in(frames, each.schema)
        rows = by_arrival(checked_rows(rows, tombstones=side == RIGHT))
        times = checked_times(rows, each.time)
        self._counts[f"{SIDES[side]}_rows"] += len(times)
        self._counts[f"{SIDES[side]}_late"] += self._progress.late(side, rows, times)
        if self._plan.early:
            first = int(self._head.get(f"{SIDES[side]}_seq", 0))
            self._head[f"{SIDES[side]}_seq"] = first + len(times)
            rows = rows.append_column(ROW, pa.array((first + np.arange(len(times))) * self._plan.shards + self._number))
        keyless = without_key(rows, each.on)
        self._counts["without_key"] += int(np.count_nonzero(keyless))
        if side == LEFT:
            return rows.append_column(PANE, pa.array(times)).combine_chunks(), punctuation
        if self._shed_to > LOWEST:
            # Newer rows of its key may have been dropped: it would seem to be the newest one.
            shed = ~keyless & (times < self._shed_to)
            self._counts["right_shed"] += int(np.count_nonzero(shed))
            keyless |= shed
        rows = rows.append_column(_TIME, pa.array(times)).filter(pa.array(~keyless)).combine_chunks()
        rows = rows.append_column(NUMBER, pa.array(numbers_of(rows, each.on)))
        return rows.select(self._kept_schema.names).cast(self._kept_schema), punctuation

    def saved(self) -> dict[str, Any]:
        self._progress.save()
        return {
            **{f"{name}_seq": self._head.get(f"{name}_seq", 0) for name in SIDES},
            "columns": columns_to_json(self._plan.sides),
            **self._progress.to_json(),
            "held": self._held.known,
            "given": self._given_to,
            "shed_to": self._shed_to,
            "kept": self._kept.to_json(),
        }


def _before(bound: int) -> int:
    return HIGHEST if bound == ENDED else bound - 1 if bound > LOWEST else LOWEST


_PARTNER, _ARRIVAL = "__upstream_partner", "__upstream_arrival"
_FEW = 1024


class EarlyAsOfShard(AsOfShard):
    """A shard of a join as of a time that gives early results.

    A row of the left leaves at once, with its newest row of the right so far. Each better partner re-emits it, with the
    same key and time, until the watermark of the right has passed it.
    """

    def __init__(self, number: int, plan: AsOfPlan, store: Store, files: RunFiles | None = None) -> None:
        own = (PANE, NUMBER, ROW, _PARTNER, _ARRIVAL)
        self._schema = pa.schema([*plan.left.schema, *(pa.field(name, pa.int64()) for name in own)])
        self._purged = 0
        self._waiting: KeyPages | None = None
        super().__init__(number, plan, store, files)
        self._waiting = KeyPages(self._store, "waiting", NUMBER, self._schema, self._head.get("waiting", {}))
        self._purged = int(self._head.get("purged", 0))

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return results of left rows that arrived or got a better partner, then punctuation."""
        rows, bounds = self._taken(given)
        for side in (LEFT, RIGHT):
            self._progress.raised(side)
        # Rows meet first: a row that waits may have got a better partner in this batch.
        given_to = max(bounds[RIGHT], self._given_to)
        result = self._revised(rows[LEFT], rows[RIGHT], min(bounds[LEFT], given_to), bounds[RIGHT], given_to)
        self._given_to = given_to
        self._purge()
        return self._ended(result, bounds), self._figures(None)

    @property
    def _left_kept(self) -> int:
        return int(self._head.get("waiting", {}).get("rows", 0)) if self._waiting is None else self._waiting.rows

    @property
    def _pages(self) -> KeyPages:
        assert self._waiting is not None
        return self._waiting

    def saved(self) -> dict[str, Any]:
        return {**super().saved(), "waiting": self._pages.to_json(), "purged": self._purged}

    def _revised(self, new: pa.Table, partners: pa.Table, needed: int, bound: int, given_to: int) -> pa.Table:
        """Return results of new rows of the left, and of waiting ones whose partner has changed.

        `new` and `partners` arrived on the left and the right. `needed` and `bound` are those of `_given`. Rows of the
        left before `given_to` are final from now on.
        """
        plan = self._plan
        keyless = without_key(new, plan.left.on)
        alone = new.filter(pa.array(keyless))
        new = new.filter(pa.array(~keyless)).combine_chunks()
        new = new.append_column(NUMBER, pa.array(numbers_of(new, plan.left.on)))
        nothing = np.full(new.num_rows, -1, dtype=np.int64)
        new = new.append_column(_PARTNER, pa.array(nothing)).append_column(_ARRIVAL, pa.array(micros(new, "arrival")))
        new = new.select(self._schema.names).cast(self._schema)
        touched = np.union1d(new.column(NUMBER).to_numpy(), partners.column(NUMBER).to_numpy())
        pages = self._pages.pages(touched)
        every = self._pages.read(pages)
        # Final rows may still be stored: nothing revises them.
        before = every.filter(pa.array(every.column(PANE).to_numpy() >= self._given_to))
        # Only waiting rows whose key has a new row on the right can change.
        asked = np.isin(before.column(NUMBER).to_numpy(), partners.column(NUMBER).to_numpy())
        others = before.filter(pa.array(~asked))
        asks = pa.concat_tables([before.filter(pa.array(asked)), new]).combine_chunks()
        right, found, gone = self._found(asks, partners, needed, bound)
        row = np.full(asks.num_rows, -1, dtype=np.int64)
        arrival = asks.column(_ARRIVAL).to_numpy()
        partner = np.full(asks.num_rows, -1, dtype=np.int64)
        if right.num_rows:
            met = found >= 0
            partner = np.where(met & ~gone[found], found, -1)
            row = np.where(partner >= 0, right.column(ROW).to_numpy()[partner], -1)
            arrival = np.where(met, np.maximum(arrival, micros(right, "arrival")[found]), arrival)
        was = asks.column(_PARTNER).to_numpy()
        fresh = np.arange(asks.num_rows) >= asks.num_rows - new.num_rows
        changed = row != was
        self._counts["unmatched"] += int(np.count_nonzero((row < 0) & (fresh | (was >= 0))))
        self._counts["unmatched"] -= int(np.count_nonzero((row >= 0) & ~fresh & (was < 0)))
        gives = changed | (fresh & (plan.how == "left"))
        asks = asks.set_column(asks.schema.get_field_index(_PARTNER), _PARTNER, pa.array(row))
        asks = asks.set_column(asks.schema.get_field_index(_ARRIVAL), _ARRIVAL, pa.array(arrival))
        now = pa.concat_tables([others, asks.cast(self._schema)])
        waits = now.column(PANE).to_numpy() >= given_to
        if len(touched):
            self._pages.write(pages, every.num_rows, now.filter(pa.array(waits)))
        tables = [self._results(asks.filter(pa.array(gives)), right, partner[gives])]
        self._counts["unmatched"] += alone.num_rows
        if plan.how == "left" and alone.num_rows:
            alone = alone.append_column(_ARRIVAL, pa.array(micros(alone, "arrival")))
            tables.append(self._results(alone, right, np.full(alone.num_rows, -1, dtype=np.int64)))
        return pa.concat_tables(tables)

    def _results(self, rows: pa.Table, right: pa.Table, partner: Int64s) -> pa.Table:
        """Return rows with their partners; in an inner join, a row that has lost its partner becomes a tombstone."""
        plan, schema = self._plan, self._plan.schema
        deleted = (partner < 0) & (plan.how == "inner")
        where = pa.array(partner, mask=partner < 0)
        named = {*plan.left.key, plan.left.time}
        columns: dict[str, Any] = {}
        for each in plan.columns:
            if each.side == RIGHT:
                columns[each.name] = right.column(each.source).take(where)
            elif each.name in named or not deleted.any():
                columns[each.name] = rows.column(each.source)
            else:  # a tombstone has its key and its time
                at = pa.array(np.arange(rows.num_rows), mask=deleted)
                columns[each.name] = rows.column(each.source).take(at)
        for name in plan.own_key:
            columns[name] = rows.column(ROW)
        system = system_array(
            source=f"join/{self._number}",
            seq=self._sequence(rows.num_rows),
            arrival_us=rows.column(_ARRIVAL).to_numpy(),
            deleted=deleted,
        )
        columns[SYSTEM] = pa.chunked_array([system]).cast(schema.field(SYSTEM).type)
        return pa.table({name: columns[name] for name in schema.names}).cast(schema)

    def _purge(self) -> None:
        """Drop all final rows, once the stored rows have doubled since the last purge."""
        pages = self._pages
        if not pages.rows or (pages.rows <= 2 * self._purged + _FEW and self._given_to != ENDED):
            return
        every = pages.all_pages
        rows = pages.read(every)
        pages.write(every, rows.num_rows, rows.filter(pa.array(rows.column(PANE).to_numpy() >= self._given_to)))
        self._purged = pages.rows
