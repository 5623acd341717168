"""Which rows left and which came, against a loop over keys."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from upstream.datasource.connectors.latest_table.changes import CHANGES, images_of

# Of each key: whether it was there, whether it stays as it was, and whether a row of it came.
KEYS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12)


def numbers(codes: list[int]) -> Any:
    return np.array(codes, dtype=np.int64)


@given(keys=KEYS, seed=st.randoms(use_true_random=False))
def test_each_row_that_left_or_came_is_one_change(keys, seed):
    before = [key for key, (held, _, _) in enumerate(keys) if held]
    kept = [key for key, (held, stays, _) in enumerate(keys) if held and stays]
    fresh = [key for key, (held, stays, comes) in enumerate(keys) if comes and not (held and stays)]
    for codes in (before, kept, fresh):
        seed.shuffle(codes)
    expected: list[tuple[str, int]] = []
    for key in fresh:
        if key in before:
            expected += [("update_preimage", before.index(key)), ("update_postimage", len(before) + fresh.index(key))]
        else:
            expected.append(("insert", len(before) + fresh.index(key)))
    gone = sorted(before.index(key) for key in before if key not in kept and key not in fresh)
    expected += [("delete", place) for place in gone]
    found = images_of(numbers(before), numbers(kept), numbers(fresh))
    assert [(CHANGES[each], place) for each, place in zip(found.changes, found.places, strict=True)] == expected


def test_of_two_earlier_rows_of_a_key_both_leave():
    found = images_of(numbers([3, 3]), numbers([]), numbers([3]))
    assert sorted(zip(found.places.tolist(), (CHANGES[each] for each in found.changes), strict=True)) == [
        (0, "delete"),
        (1, "update_preimage"),
        (2, "update_postimage"),
    ]
