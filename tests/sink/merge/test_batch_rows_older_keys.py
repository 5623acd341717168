"""Keys without a newer row: each once, whatever tasks their rows came in."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.sink.merge.batch_rows import OlderKeys, counted
from upstream.sink.table.key_index import key_hashes

ROWS = st.lists(st.tuples(st.sampled_from(["a", "b", "ab", ""]), st.booleans()), max_size=8)


def table(keys):
    return pa.table({"k": pa.array(keys, pa.string())})


def of(rows, most=99):
    return OlderKeys.of(table([key for key, _ in rows]), ["k"], np.array([won for _, won in rows], dtype=bool), most)


@given(tasks=st.lists(ROWS, min_size=1, max_size=3))
def test_a_key_counts_if_none_of_its_rows_won(tasks):
    won = {key for rows in tasks for key, wins in rows if wins}
    lost = {key for rows in tasks for key, wins in rows if not wins} - won
    found = OlderKeys.together([of(rows) for rows in tasks], key_hashes(table(sorted(won)), ["k"]))
    assert found.total == len(lost)
    assert sorted(np.frombuffer(found.hashes, dtype=np.int64)) == sorted(key_hashes(table(sorted(lost)), ["k"]))


def test_beyond_a_number_of_keys_each_task_counts_its_own():
    rows = [("a", False), ("b", False), ("c", True)]
    assert of(rows, most=1) == (2, None)
    assert OlderKeys.together([of(rows, most=1), of(rows)]) == (4, None)
    assert counted([[of(rows), of(rows)], [of(rows)]]) == 4
    assert OlderKeys.of(table(["a"]), (), np.array([False]), 9).total == 1, "without a key, rows"
