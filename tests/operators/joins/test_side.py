import numpy as np
import pyarrow as pa

from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.joins.pair_kernel import sorted_rows
from upstream.operators.joins.plan import JoinSide
from upstream.operators.joins.side import NUMBER, ROW, KeptSide
from upstream.operators.runtime.feeds import ENDED
from upstream.operators.state.store import DictStore

from .batches import table

SCHEMA = pa.schema([("k", pa.int64()), ("t", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
SIDE = JoinSide(("k",), "t", SCHEMA)


def rows(times, first=0, key=1):
    keys = np.full(len(times), key)
    found = table(SCHEMA, [(key, time) for time in times])
    found = found.append_column(ROW, pa.array(first + np.arange(len(times)))).append_column(NUMBER, pa.array(keys))
    return sorted_rows(keys, np.array(times, dtype=np.int64), found)


def times_of(side, least, greatest):
    found = [each for part in side.between(least, greatest) for each in part.times.tolist()]
    return sorted(each for each in found if least <= each <= greatest)


def test_rows_are_found_by_time_and_below_the_bound_no_more():
    store = DictStore()
    side = KeptSide(store, "left", SIDE, 10, {})
    side.add(rows([5, 9, 10, 25]))
    assert times_of(side, 9, 10) == [9, 10]
    assert times_of(side, 11, 24) == []
    side.drop_below(10)
    again = KeptSide(store, "left", SIDE, 10, side.to_json())
    assert again.kept_from == 10
    assert list(again.between(0, 9)) == []
    assert again.first() == 10
    again.drop_below(5)
    assert again.kept_from == 10
    again.drop_below(ENDED)
    assert again.rows == 0
    assert store.values == {}


def test_rows_leave_at_the_bound_unless_they_have_met():
    side = KeptSide(DictStore(), "left", SIDE, 10, {})
    side.add(rows([5, 9, 10], first=100))
    side.mark(np.array([101]), np.array([9]))
    assert side.have_met(np.array([100, 101]), np.array([5, 9])).tolist() == [False, True]
    assert side.leaving(5).num_rows == 0
    assert side.leaving(10).column(ROW).to_pylist() == [100]
    side.drop_below(10)
    assert side.leaving(11).column(ROW).to_pylist() == [102]


def test_a_part_by_time_is_sorted_after_many_small_batches():
    store, saved = DictStore(), {}
    chance = np.random.default_rng(3)
    for batch in range(60):
        side = KeptSide(store, "left", SIDE, 10, saved)
        side.add(rows(chance.integers(0, 40, 50).tolist(), first=batch * 50, key=batch % 3))
        saved = side.to_json()
    side = KeptSide(store, "left", SIDE, 10, saved)
    parts = list(side.between(0, 40))
    assert sum(len(part.times) for part in parts) == 3000
    assert len(parts) < 20
    for part in parts:
        order = np.lexsort((part.times, part.numbers))
        assert np.array_equal(part.times[order], part.times)
        assert np.array_equal(part.numbers[order], part.numbers)
