import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.joins.release.ordered_release import TimeQueue
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([("t", pa.int64()), ("n", pa.int64())])


def queue(store, saved):
    return TimeQueue(store, "held", SCHEMA, "t", json.loads(json.dumps(saved)))


def rows(times, first):
    return pa.table({"t": times, "n": range(first, first + len(times))}, schema=SCHEMA)


STEPS = st.lists(
    st.tuples(st.lists(st.integers(-5, 20), max_size=6), st.sampled_from([LOWEST, *range(-6, 22)]), st.booleans()),
    max_size=25,
)


@given(STEPS)
def test_each_row_leaves_once_at_the_first_bound_that_lets_it_go(steps):
    store, saved, waiting, number, passed = DictStore(), {}, [], 0, LOWEST
    for times, bound, drained in steps:
        held = queue(store, saved)
        new = rows(times, number)
        waiting += zip(times, range(number, number + len(times)), strict=True)
        number += len(times)
        found = held.release(new, bound)
        passed = max(passed, bound)
        wanted = [each for each in waiting if each[0] <= passed and passed > LOWEST]
        assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(wanted)
        waiting = [each for each in waiting if each not in wanted]
        assert held.rows == len(waiting)
        assert held.first == min((time for time, _ in waiting), default=None)
        if drained:
            assert sorted(zip(*held.drain().to_pydict().values(), strict=True)) == sorted(waiting)
            waiting = []
            assert (held.rows, held.first) == (0, None)
        saved = held.to_json()
    last = queue(store, saved)
    assert last.release(rows([], 0), HIGHEST).num_rows == len(waiting)
    assert not store.values


def test_thousands_of_rows_leave_in_parts_and_their_runs_are_given_back():
    store, saved, left = DictStore(), {}, 0
    for batch in range(60):
        held = queue(store, saved)
        found = held.release(rows([batch * 100 + at for at in range(500)], 0), batch * 100)
        left += found.num_rows
        saved = held.to_json()
        assert held.rows == 500 * (batch + 1) - left
    assert held.rows < 3000
    assert len(store.values) <= 20


def test_rows_that_wait_get_null_in_a_new_column():
    store = DictStore()
    held = queue(store, {})
    held.release(rows([5], 0), 1)
    more = TimeQueue(store, "held", pa.schema([*SCHEMA, ("c", pa.string())]), "t", held.to_json())
    new = pa.table({"t": [5], "n": [1], "c": ["x"]})
    assert more.release(new, 5).to_pylist() == [{"t": 5, "n": 0, "c": None}, {"t": 5, "n": 1, "c": "x"}]
