import numpy as np
import pyarrow as pa
import pytest

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins.band import IntervalBand
from upstream.operators.joins.pairs import NewestPairs
from upstream.operators.joins.plan import JoinPlan, JoinSide
from upstream.operators.state.store import DictStore


def plan(kind):
    side = JoinSide(("k",), "t", pa.schema([("k", kind), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]))
    return JoinPlan(side, side, IntervalBand(8, 8), output="latest")


def results(join, *pairs):
    """Pairs (key, time of the left, time of the right)."""
    n = len(pairs)
    columns = {
        "k": [pair[0] for pair in pairs], "t": [pair[1] for pair in pairs], "t_right": [pair[2] for pair in pairs],
        "join_time": [max(each for each in pair[1:] if each is not None) for pair in pairs],
        SYSTEM: system_array(source="f", seq=np.arange(n), arrival_us=np.arange(n)),
    }  # fmt: skip
    return pa.table(
        [pa.array(columns[name], join.schema.field(name).type) for name in join.schema.names], schema=join.schema
    )


@pytest.mark.parametrize("kind", [pa.int64(), pa.string()])
def test_an_older_pair_of_the_same_time_does_not_follow_a_newer_one(kind):
    join, store, saved = plan(kind), DictStore(), ()
    key = (lambda number: number) if kind == pa.int64() else str

    def batch(promised, *pairs):
        nonlocal saved
        newest = NewestPairs(store, join, saved)
        found = newest.filtered(results(join, *((key(pair[0]), *pair[1:]) for pair in pairs)), promised)
        saved = [list(run) for run in newest.known]
        return [(row["t"], row["t_right"]) for row in found.to_pylist()]

    assert batch(0, (1, 10, 9), (1, 8, 10), (2, 3, 3)) == [(10, 9), (3, 3)]
    assert batch(0, (1, 7, 10)) == []
    assert batch(0, (1, 10, None)) == []
    assert batch(0, (1, 9, 10), (1, 12, 4)) == [(12, 4)]
    assert batch(13) == []
    assert {kind for kind, _ in store.values} <= {"newest"}
    assert batch(100) == []
    assert store.values == {}


def test_the_time_may_be_one_of_the_columns_that_are_equal():
    side = JoinSide(("k", "t"), "t", pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)]))
    join = JoinPlan(side, side, IntervalBand(0, 0), output="latest")
    system = system_array(source="f", seq=np.arange(2), arrival_us=np.arange(2))
    columns = {"k": pa.array([1, 1]), "t": pa.array([5, 7]), "join_time": pa.array([5, 7]), SYSTEM: system}
    pairs = pa.table([columns[name] for name in join.schema.names], schema=join.schema)
    assert NewestPairs(DictStore(), join, ()).filtered(pairs, 0).column("t").to_pylist() == [5, 7]
