"""Windows of newest rows against the rows themselves: every order, split, revision, deletion and restart."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.frames import by_bucket, split_punctuation, to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.aggregates.functions import count, max_, sum_
from upstream.operators.grouped.plan import GroupWindowPlan
from upstream.operators.grouped.window_shard import WindowGroupShard, WindowVersionShard
from upstream.operators.joins.latest_changes import VersionShard
from upstream.operators.joins.latest_plan import VersionPlan
from upstream.operators.runtime.feeds import ENDED, punctuation_rows
from upstream.operators.state.store import DictStore
from upstream.operators.windows.kinds import SlidingWindows
from upstream.operators.windows.shards.plan import WindowPlan

SCHEMA = pa.schema(
    [("k", pa.int64()), ("g", pa.string()), ("t", pa.int64()), ("v", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
)
AGGREGATES = {"n": count(), "total": sum_("v"), "most": max_("v")}
SHARDS = 2


def plan(windows, key=("k",), newest="window", early=True, lateness=0, aggregates=AGGREGATES):
    window = WindowPlan(
        ("g",), "t", "epoch_us", "UTC", windows, aggregates, "all+early" if early else "all", "paned", lateness, SHARDS,
        SCHEMA,
    )  # fmt: skip
    return GroupWindowPlan(window, key, "t", newest, early)


class Query:
    """Both stages, as Spark runs them, and the table behind them."""

    def __init__(self, asked):
        self.plan, self.stores = asked, {}
        self.table, self.finals, self.arrived, self.bound, self.late = {}, {}, 0, None, 0

    def store(self, *name):
        return self.stores.setdefault(name, DictStore())

    def batch(self, rows, bound=None):
        """Run a batch of rows (key, group, time, value, deleted), then punctuation; None for no more of it."""
        numbers = self.arrived + np.arange(len(rows))
        self.arrived += len(rows)
        columns = [pa.array([row[at] for row in rows], SCHEMA.field(at).type) for at in range(4)]
        deleted = np.array([row[4] for row in rows], dtype=np.bool_)
        system = system_array(source="f", seq=numbers, arrival_us=numbers, deleted=deleted)
        given = pa.table([*columns, system], schema=SCHEMA)
        if bound is not None:
            at = pa.array([None if bound == ENDED else bound], pa.int64())
            punctuation = punctuation_rows(SCHEMA, ["f"], self.arrived, t=at).cast(SCHEMA)
            given = pa.concat_tables([given, punctuation])
        if not self.plan.stays:
            given = self.in_shards(given, self.plan.key, self.versions)
        self.take(self.in_shards(given, self.plan.group, self.groups))

    def in_shards(self, rows, by, run):
        rows, punctuation = split_punctuation(rows)
        parts = dict(by_bucket(rows, by, SHARDS)) if rows.num_rows else {}
        found = []
        for shard in range(SHARDS) if punctuation.num_rows else parts:
            result = run(shard, to_frame(pa.concat_tables([parts.get(shard, rows.slice(0, 0)), punctuation])))
            found += [] if result is None else [result]
        return pa.concat_tables(found) if found else self.empty(run)

    def empty(self, run):
        return self.plan.side.versioned.empty_table() if run == self.versions else SCHEMA.empty_table()

    def versions(self, shard, frame):
        store = self.store("versions", shard)
        if self.plan.ends:
            operator = WindowVersionShard(shard, self.plan, store)
            result, _ = operator.run([frame])
            self.late += 0 if operator.late is None else operator.late.num_rows
            return result
        return VersionShard(shard, VersionPlan(self.plan.side, SHARDS), store).run([frame])[0]

    def groups(self, shard, frame):
        operator = WindowGroupShard(shard, self.plan, self.store("groups", shard))
        result, _ = operator.run([frame])
        self.late += 0 if operator.late is None else operator.late.num_rows
        return result

    def take(self, result):
        if "window_id" not in result.column_names:
            return
        rows, punctuation = split_punctuation(result)
        names = list(zip(rows.column("g").to_pylist(), rows.column("window_id").to_pylist(), strict=True))
        assert len(set(names)) == len(names)  # one result of each in a batch
        for name, row in zip(names, rows.to_pylist(), strict=True):
            if self.bound is not None:
                assert row["window_time"] >= self.bound  # what was promised
            assert name not in self.finals  # given once more after it was final
            if row[SYSTEM]["deleted"]:
                assert name in self.table
                del self.table[name]
                continue
            self.table[name] = row["n"], row["total"], row["most"]
            if row["final"]:
                self.finals[name] = self.table[name]
        times = [row["window_time"] for row in punctuation.to_pylist() if row["window_time"] is not None]
        self.bound = max(times) if times else self.bound


def expected(windows, rows, key, newest, lateness=0):
    """The groups of each window; rows come with the bound that was promised before them."""
    counted, late = {}, 0
    for row, bound in rows:
        first, last = map(int, windows.wids(row[2]))
        final = first - 1 if bound is None or newest == "table" else int(windows.last_complete(bound - lateness))
        late += first <= min(final, last)
        if newest == "table":
            if key(row) not in counted or row[2] >= counted[key(row)][2]:
                counted[key(row)] = row
            continue
        for window in range(max(first, final + 1), last + 1):
            name = (*key(row), window)
            if name not in counted or row[2] >= counted[name][2]:
                counted[name] = row
    found = {}
    for name, row in counted.items():
        first, last = map(int, windows.wids(row[2]))
        for window in range(first, last + 1) if newest == "table" else [name[-1]]:
            if not row[4] and row[1] is not None:
                found.setdefault((row[1], window), []).append(row[3])
    return {
        group: (len(values), sum(some) if (some := [each for each in values if each is not None]) else None,
                max(some, default=None))
        for group, values in found.items()
    }, late  # fmt: skip


ROW = st.tuples(
    st.integers(0, 3), st.sampled_from(["x", "y", None]), st.integers(0, 30), st.none() | st.integers(-5, 5),
    st.integers(0, 4).map(lambda number: number == 0),
)  # fmt: skip
WINDOWS = st.builds(SlidingWindows, st.integers(1, 12), st.integers(1, 8), st.integers(-3, 3))
BATCHES = st.lists(st.tuples(st.lists(ROW, max_size=6), st.none() | st.integers(0, 34)), max_size=6)


def run(asked, batches):
    """Play batches; a row has a group unless it is deleted, and always where the key has the group."""
    query, rows, bound = Query(asked), [], None
    windows, lateness, size = asked.window.windows, asked.window.lateness_us, len(asked.key)
    for drawn, promised in batches:
        batch = [
            (key, (group or "x") if size == 2 else None if gone else group, time, None if gone else value, gone)
            for key, group, time, value, gone in drawn
        ]
        rows += [(row, bound) for row in batch]
        query.batch(batch, promised)
        if promised is not None:
            bound = promised if bound is None else max(bound, promised)
        found, late = expected(windows, rows, lambda row: row[:size], asked.newest, lateness)
        final = None if bound is None or not asked.ends else int(windows.last_complete(bound - lateness))
        now = {name: values for name, values in found.items() if final is not None and name[1] <= final}
        assert query.finals == now
        assert query.late == late
        assert query.table == (found if asked.early else now)
    return query, rows


@given(WINDOWS, BATCHES, st.booleans(), st.integers(0, 9))
def test_each_key_counts_once_in_each_window(windows, batches, early, lateness):
    query, rows = run(plan(windows, early=early, lateness=lateness), batches)
    query.batch([], ENDED)
    found, _ = expected(windows, rows, lambda row: row[:1], "window", lateness)
    assert query.finals == query.table == found
    assert all(set(store.values) <= {("head", 0)} for store in query.stores.values())


@pytest.mark.parametrize(("key", "newest"), [(("k", "g"), "window"), (("k",), "table"), (("k", "g"), "table")])
@given(WINDOWS, BATCHES)
def test_windows_of_keys_that_stay_and_of_a_table_of_newest_rows(key, newest, windows, batches):
    query, _ = run(plan(windows, key=key, newest=newest), batches)
    assert not any(name[0] == "versions" for name in query.stores) or "g" not in key, "it needs no stage of its own"
    assert newest == "window" or not query.finals


def test_the_pages_of_windows_go_with_the_last_of_them():
    query = Query(plan(SlidingWindows(10, 5)))
    for bound, kinds in ((9, {"head", "groups.0", "groups.0_members_rows", "keys.0"}), (10, {"head"})):
        query.batch([(1, "x", 4, 1, False)] if bound == 9 else [], bound)
        assert {kind.split("/")[0] for store in query.stores.values() for kind, _ in store.values} == kinds
