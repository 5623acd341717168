"""A join of newest rows against the join of both tables as they are: every order, split, move, deletion and restart."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError, MalformedRowError
from upstream.core.pushdown.ipc_frames import from_frame, to_frame
from upstream.core.rows.buckets import bucket_of
from upstream.core.rows.split import by_bucket
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.latest_plan import LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.joins.latest_shard import LatestJoinShard, VersionShard
from upstream.operators.runtime.store import DictStore

LEFT = pa.schema(
    [("v", pa.int64()), ("r", pa.string()), ("t", pa.int64()), ("a", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
)
SHARDS = 3


RIGHT = pa.schema(
    [("w", pa.int64()), ("r", pa.string()), ("t", pa.int64()), ("b", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
)


def plan(right_key=("r",), left_key=("v",), how="inner", shards=SHARDS, left=LEFT, right=RIGHT, time="t"):
    return LatestJoinPlan(
        LatestSide(("r",), "t", left, left_key, time),
        LatestSide(("r",), "t", right, right_key, time),
        how,
        "_right",
        shards,
    )


def frame(schema, rows):
    """Rows (key, on, time, number, deleted)."""
    columns = [pa.array([row[at] for row in rows], schema.field(at).type) for at in range(4)]
    numbers = np.array([row[3] for row in rows], dtype=np.int64)
    deleted = np.array([row[4] for row in rows], dtype=np.bool_)
    return pa.table(
        [*columns, system_array(source="f", seq=numbers, arrival_us=numbers, deleted=deleted)], schema=schema
    )


class Query:
    """All stages of a join, as Spark runs them."""

    def __init__(self, join):
        self.join = join
        self.stores = {}
        self.table = {}
        self.reports = []

    def store(self, *name):
        return self.stores.setdefault(name, DictStore())

    def batch(self, *both):
        frames = []
        for number, (side, rows) in enumerate(zip(self.join.sides, both, strict=True)):
            table = frame(side.schema, rows)
            if not side.stays:
                found = []
                for shard, part in by_bucket(table, side.key, SHARDS) if table.num_rows else ():
                    versions = VersionShard(shard, VersionPlan(side, SHARDS), self.store("versions", number, shard))
                    result, _ = versions.run([to_frame(part)])
                    if result is not None:
                        found.append(result)
                table = pa.concat_tables(found) if found else side.versioned.empty_table()
            frames.append(
                {shard: to_frame(part) for shard, part in by_bucket(table, side.on, self.join.shards)}
                if table.num_rows
                else {}
            )
        given = []
        for shard in sorted(frames[0].keys() | frames[1].keys()):
            join = LatestJoinShard(shard, self.join, self.store("join", shard))
            result, report = join.run(*([each[shard]] if shard in each else [] for each in frames))
            self.reports.append(report)
            if result is not None:
                given += result.to_pylist()
        # As the table does: of a key's rows that with the greatest number counts.
        for row in sorted(given, key=lambda row: row[SYSTEM]["seq"]):
            key = tuple(row[name] for name in self.join.key)
            if row[SYSTEM]["deleted"]:
                self.table.pop(key, None)
            else:
                self.table[key] = (row["a"], row["b"], row["join_time"])
        return given


def newest(rows, key):
    found = {}
    for row in rows:
        if key(row) not in found or row[2] >= found[key(row)][2]:
            found[key(row)] = row
    return [row for row in found.values() if not row[4]]


def expected(left, right, left_key, right_key, how):
    """The join of the newest rows, by the key of the results."""
    places = {"v": 0, "w": 0, "r": 1}
    of = [lambda row, names=names: tuple(row[places[name]] for name in names) for names in (left_key, right_key)]
    ones, twos = newest(left, of[0]), newest(right, of[1])
    to_one = right_key == ("r",)
    found = {}
    for one in ones:
        partners = [two for two in twos if one[1] is not None and one[1] == two[1]]
        for two in partners:
            found[of[0](one) if to_one else (*of[0](one), *of[1](two))] = (
                one[3], two[3], max(one[2], two[2])
            )  # fmt: skip
        if not partners and how == "left":
            found[of[0](one)] = (one[3], None, one[2])
    return found


ONS = st.sampled_from(["x", "y", "z", None])


@st.composite
def updates(draw, key):
    """Batches of rows of one side: (key, on, time, number, deleted). A side whose key is `on` has it in each row."""
    batches, number = [], 0
    for _ in range(4):
        rows = []
        for _ in range(draw(st.integers(0, 6))):
            deleted = draw(st.booleans()) and draw(st.booleans())
            on = draw(ONS if key != ("r",) else st.sampled_from(["x", "y", "z"]))
            name = draw(st.integers(0, 3))
            if deleted and "r" not in key:
                on = None
            if "r" in key:
                on = on or "x"
            rows.append((name, on, draw(st.integers(0, 9)), number, deleted))
            number += 1
        batches.append(rows)
    return batches


def flat(batches):
    return [row for rows in batches for row in rows]


@given(updates(("v",)), updates(("r",)), st.sampled_from(["inner", "left"]))
def test_each_left_row_has_its_newest_partner(left, right, how):
    query = Query(plan(("r",), how=how))
    for at, (one, two) in enumerate(zip(left, right, strict=True)):
        query.batch(one, two)
        assert query.table == expected(flat(left[: at + 1]), flat(right[: at + 1]), ("v",), ("r",), how)


@given(updates(("v",)), updates(("w",)))
def test_pairs_of_rows_that_move_come_and_go(left, right):
    query = Query(plan(("w",)))
    assert query.join.key == ("v", "w")
    for at, (one, two) in enumerate(zip(left, right, strict=True)):
        query.batch(one, two)
        assert query.table == expected(flat(left[: at + 1]), flat(right[: at + 1]), ("v",), ("w",), "inner")


@given(updates(("r",)), updates(("r",)))
def test_one_key_on_both_sides(left, right):
    query = Query(plan(("r",), ("r",)))
    assert query.join.key == ("r",)
    for at, (one, two) in enumerate(zip(left, right, strict=True)):
        query.batch(one, two)
        assert query.table == expected(flat(left[: at + 1]), flat(right[: at + 1]), ("r",), ("r",), "inner")
    assert not any(name[0] == "versions" for name in query.stores)


@given(updates(("v", "r")), updates(("w",)))
def test_a_key_that_has_the_join_columns_needs_no_stage_of_its_own(left, right):
    query = Query(plan(("w",), ("v", "r")))
    assert query.join.key == ("v", "r", "w")
    for at, (one, two) in enumerate(zip(left, right, strict=True)):
        query.batch(one, two)
        pairs = expected(flat(left[: at + 1]), flat(right[: at + 1]), ("v", "r"), ("w",), "inner")
        assert query.table == {tuple(key): value for key, value in pairs.items()}


def test_a_batch_writes_the_rows_that_change():
    query = Query(plan(("r",), shards=1))
    routes = [(at, f"r{at}", 1, at, False) for at in range(3000)]
    buses = [(at, f"r{at % 3000}", 1, at, False) for at in range(6000)]
    query.batch(buses, routes)
    assert len(query.table) == 6000
    assert len([1 for kind, _ in query.stores["join", 0].values if kind == "left/0"]) > 5
    before = {**query.stores["join", 0].values}
    query.batch([(17, "r2", 2, 9000, False)], [])
    after = query.stores["join", 0].values
    changed = {name: after[name] for name in after if after[name] != before.get(name)}
    assert changed.keys() == {("head", 0), ("left/1", 0)}
    assert from_frame(changed["left/1", 0]).num_rows == 2  # where it was, and where it is now
    assert query.table[17,] == (9000, 2, 2)
    query.batch([], [(0, "r2", 3, 9001, False)])
    assert [query.table[key,] for key in (2, 3002, 17)] == [(2, 9001, 3), (3002, 9001, 3), (9000, 9001, 3)]
    query.batch([], [(0, "r2", 4, 9002, True)])
    assert not {(2,), (3002,), (17,)} & query.table.keys()
    assert len(query.table) == 5997


def test_rows_without_a_time_and_other_joins_are_refused():
    query = Query(plan())
    with pytest.raises(MalformedRowError, match="no time"):
        query.batch([(1, "x", None, 0, False)], [])
    query.batch([(1, "x", 1, 0, False)], [(1, "x", 1, 0, False)])
    shard = int(bucket_of([pa.array(["x"])], SHARDS)[0])
    with pytest.raises(CheckpointError, match="how"):
        LatestJoinShard(shard, plan(how="left"), query.store("join", shard))
    fewer = pa.schema([field for field in LEFT if field.name != "a"])
    with pytest.raises(CheckpointError, match="other columns are kept"):
        LatestJoinShard(shard, plan(left=fewer), query.store("join", shard))


def test_what_arrives_later_is_newer_without_an_event_time():
    join = plan(("r",), ("r",), time=None)
    assert not join.has_time
    store = DictStore()
    shard = LatestJoinShard(0, join, store)
    result, report = shard.run(
        [to_frame(frame(LEFT, [(1, "x", 5, 1, False), (1, "x", 3, 2, False)]))],
        [to_frame(frame(RIGHT, [(1, "x", 0, 0, False)]))],
    )
    assert [row["a"] for row in result.to_pylist()] == [2]
    assert (report.left_rows, report.right_rows, report.results, report.retracted) == (2, 1, 1, 0)
    assert (report.left_kept, report.right_kept) == (1, 1)
    assert from_frame(to_frame(result)).schema.names == join.schema.names


def test_the_later_of_two_times_in_a_zone():
    kind = pa.timestamp("us", tz="UTC")
    left, right = (schema.set(2, pa.field("t", kind)) for schema in (LEFT, RIGHT))
    join = plan(("r",), ("r",), left=left, right=right)
    rows = [(1, "x", 5, 0, False), (2, "y", 3, 1, False)], [(1, "x", 4, 0, False), (2, "y", 9, 1, False)]
    frames = [[to_frame(frame(schema, some))] for schema, some in zip((left, right), rows, strict=True)]
    result, _ = LatestJoinShard(0, join, DictStore()).run(*frames)
    assert result.column("join_time").cast(pa.int64()).to_pylist() == [5, 9]


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_change_arrives_with_the_row_that_causes_it(how):
    query = Query(plan(how=how))
    query.batch([(1, "x", 1, 10, False)], [(0, "x", 1, 20, False)])
    (row,) = query.batch([], [(0, "x", 2, 30, True)])
    assert row[SYSTEM]["deleted"] == (how == "inner")
    assert row[SYSTEM]["arrival"].microsecond == 30
    (row,) = query.batch([(1, "y", 2, 40, False)], [])
    assert row[SYSTEM]["arrival"].microsecond == 40
    pairs = Query(plan(("w",)))
    pairs.batch([(1, "x", 1, 10, False)], [(5, "x", 1, 20, False)])
    (row,) = pairs.batch([(1, "y", 2, 30, False)], [])
    assert row[SYSTEM]["deleted"]
    assert row[SYSTEM]["arrival"].microsecond == 30
