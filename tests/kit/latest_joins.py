"""Joins of newest rows as Spark runs them, all stages and shards, and the join of the newest rows by brute force."""

import copy

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from upstream.core.rows.frames import by_bucket, to_frame
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.latest_changes import LatestJoinShard, VersionShard
from upstream.operators.joins.latest_plan import LatestJoinPlan, LatestSide, VersionPlan
from upstream.operators.runtime.feeds import punctuation_rows
from upstream.operators.state.store import DictStore

LEFT = pa.schema(
    [("v", pa.int64()), ("r", pa.string()), ("t", pa.int64()), ("a", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
)
RIGHT = pa.schema(
    [("w", pa.int64()), ("r", pa.string()), ("t", pa.int64()), ("b", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]
)
SHARDS = 3


def plan(
    right_key=("r",), left_key=("v",), how="inner", shards=SHARDS, left=LEFT, right=RIGHT, time="t", ttl=(None, None),
    **more,
):  # fmt: skip
    return LatestJoinPlan(
        LatestSide(("r",), "t", left, left_key, time, ttl=ttl[0]),
        LatestSide(("r",), "t", right, right_key, time, ttl=ttl[1]),
        how,
        "_right",
        shards,
        **more,
    )


def frame(schema, rows):
    """Rows (key, on, time, number, deleted), arriving at their number, the first that they cover at half of it."""
    columns = [pa.array([row[at] for row in rows], schema.field(at).type) for at in range(4)]
    numbers = np.array([row[3] for row in rows], dtype=np.int64)
    deleted = np.array([row[4] for row in rows], dtype=np.bool_)
    return pa.table(
        [
            *columns,
            system_array(source="f", seq=numbers, arrival_us=numbers, first_arrival_us=numbers // 2, deleted=deleted),
        ],
        schema=schema,
    )


class Query:
    """All stages of a join, as Spark runs them."""

    def __init__(self, join):
        self.join = join
        self.stores = {}
        self.table = {}
        self.numbers = {}
        self.reports = {}
        self.versions = {}

    def store(self, *name):
        return self.stores.setdefault(name, DictStore())

    def batch(self, *both, bounds=(None, None)):
        """Run rows of both sides, and punctuation of one input partition of each."""
        frames = []
        for number, (side, rows, bound) in enumerate(zip(self.join.sides, both, bounds, strict=True)):
            table = frame(side.schema, rows)
            heard = side.hears and bound is not None
            alone = [punctuation(side.schema, bound)] if heard else []
            if side.stays:
                frames.append(packed(table, side, self.join.shards, alone))
                continue
            found = []
            for shard, parts in packed(table, side, SHARDS, alone, side.key).items():
                versions = VersionShard(
                    shard, VersionPlan(side, SHARDS, self.join.limit), self.store("versions", number, shard)
                )
                result, report = versions.run(parts)
                self.versions[number, shard] = report
                if result is not None:
                    found.append(result)
            table = pa.concat_tables(found) if found else side.versioned.empty_table()
            frames.append(packed(table, side, self.join.shards, []))
        given = []
        for shard in sorted(frames[0].keys() | frames[1].keys()):
            join = LatestJoinShard(shard, self.join, self.store("join", shard))
            result, self.reports[shard] = join.run(*(each.get(shard, []) for each in frames))
            if result is not None:
                given += result.to_pylist()
        # As the table does: of a key's rows, those of earlier batches too, that with the greatest number counts.
        for row in sorted(given, key=lambda row: row[SYSTEM]["seq"]):
            key = tuple(row[name] for name in self.join.key)
            assert None not in key
            if row[SYSTEM]["seq"] < self.numbers.get(key, 0):
                continue
            self.numbers[key] = row[SYSTEM]["seq"]
            if row[SYSTEM]["deleted"]:
                self.table.pop(key, None)
            else:
                self.table[key] = tuple(row.get(name) for name in ("a", "b", "join_time"))
        return given

    def repeated(self, *both, bounds=(None, None)):
        """Run a batch twice, the second time on the state before the first, and compare."""
        before = copy.deepcopy(self)
        given = self.batch(*both, bounds=bounds)
        assert before.batch(*both, bounds=bounds) == given
        return given


def packed(table, side, shards, alone, by=None):
    """Return the frames of each shard: all get the punctuation."""
    frames = {shard: list(alone) for shard in range(shards)} if alone else {}
    for shard, part in by_bucket(table, by or side.on, shards) if table.num_rows else ():
        frames.setdefault(shard, []).append(to_frame(part))
    return frames


def punctuation(schema, bound):
    return to_frame(punctuation_rows(schema, ["f"], 1_000_000, t=pa.array([bound], pa.int64())))


def newest(rows, key, below=None):
    """The newest rows, without those that have expired."""
    found = {}
    for row in rows:
        if key(row) not in found or row[2] >= found[key(row)][2]:
            found[key(row)] = row
    return [row for row in found.values() if not row[4] and (below is None or row[2] >= below)]


def expected(left, right, left_key, right_key, how, below=(None, None), meets=None):
    """The join of the newest rows, by the key of the results; `meets` decides for rows with equal values of `on`."""
    places = {"v": 0, "w": 0, "r": 1}
    of = [lambda row, names=names: tuple(row[places[name]] for name in names) for names in (left_key, right_key)]
    ones, twos = newest(left, of[0], below[0]), newest(right, of[1], below[1])

    def named(one, two):
        keys = [None if row is None else each(row) for row, each in zip((one, two), of, strict=True)]
        if how in ("semi", "anti") or (how in ("inner", "left") and right_key == ("r",)):
            return keys[0]
        if how == "right" and left_key == ("r",):
            return keys[1]
        if how == "inner":
            return tuple(dict(zip((*left_key, *right_key), (*keys[0], *keys[1]), strict=True)).values())
        if left_key == right_key == ("r",) and meets is None:
            return keys[0] or keys[1]
        return tuple("\\N" if key is None else ",".join(map(str, key)) for key in keys)

    found, met, met_by = {}, [], []
    for one in ones:
        for two in twos:
            if one[1] is not None and one[1] == two[1] and (meets is None or meets(one, two)):
                found[named(one, two)] = (one[3], two[3], max(one[2], two[2]))
                met.append(one)
                met_by.append(two)
    if how in ("semi", "anti"):
        return {named(one, None): (one[3], None, None) for one in ones if (one in met) == (how == "semi")}
    if how in ("left", "full"):
        found |= {named(one, None): (one[3], None, one[2]) for one in ones if one not in met}
    if how in ("right", "full"):
        found |= {named(None, two): (None, two[3], two[2]) for two in twos if two not in met_by}
    return found


HOWS = ["inner", "left", "right", "full", "semi", "anti"]
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
