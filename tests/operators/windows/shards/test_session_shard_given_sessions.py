"""What readers have of sessions, and what is taken back of it."""

import numpy as np
import pyarrow as pa

from upstream.operators.state.store import DictStore
from upstream.operators.windows.sessions import Sessions, SessionWindows
from upstream.operators.windows.shards.session_shard import GivenSessions, latest_of_key

from .drawn import plan_of

PLAN = plan_of(SessionWindows(5), "all+early")


def sessions(*each):
    """Key, first and last time."""
    key, start, last = (np.array([one[at] for one in each], dtype=np.int64) for at in range(3))
    keys = pa.table([pa.array(key)], schema=PLAN.key_schema)
    return Sessions(keys, start, last, PLAN.algebra.empty(len(each)))


def flags(*values):
    return np.array(values, dtype=bool)


def test_results_in_a_session_with_another_beginning_are_taken_back_with_the_time_that_they_had():
    store = DictStore()
    given = GivenSessions(store, PLAN, {})
    before = sessions((1, 0, 3), (1, 20, 25), (2, 0, 0))
    none = flags(0, 0, 0)
    taken, again = given.replaced(before, flags(1, 0, 1), flags(0, 1, 0), none)
    assert (len(taken), again, given.least_end) == (0, 0, 5)
    given = GivenSessions(store, PLAN, given.to_json())
    after = sessions((1, -4, 30), (2, 0, 0))
    waits, again = given.replaced(after, flags(0, 0), flags(0, 0), flags(0, 0))
    assert len(waits) == again == 0, "nothing is taken back before the session that swallowed it is given"
    taken, again = given.replaced(after, flags(1, 0), flags(0, 0), flags(0, 0))
    assert taken.keys.column("key").to_pylist() == [1, 1]
    assert taken.ends is not None
    assert sorted(zip(taken.wids.tolist(), taken.ends.tolist(), strict=True)) == [(0, 8), (20, 30)]
    assert again == 1, "one of the two results was final"
    given.replaced(after, flags(0, 0), flags(0, 0), flags(1, 1))
    assert not store.values


def test_the_latest_of_each_key_among_some():
    codes = np.array([0, 0, 0, 1, 2, 2])
    assert latest_of_key(codes, flags(1, 1, 0, 0, 1, 1)).tolist() == [False, True, False, False, False, True]
    assert latest_of_key(codes, flags(0, 0, 0, 0, 0, 0)).sum() == 0
