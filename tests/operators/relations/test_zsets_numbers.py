import numpy as np
import polars as pl

from upstream.operators.relations.zsets import key_numbers, mixed


def test_equal_keys_have_equal_numbers():
    frame = pl.DataFrame({"f": [0.0, -0.0, float("nan"), -float("nan"), None], "k": ["a"] * 5})
    numbers = key_numbers(frame, ["f", "k"])
    assert numbers[0] == numbers[1]
    assert numbers[2] == numbers[3]
    assert len(set(numbers.tolist())) == 3


def test_numbers_are_those_of_spark():
    assert key_numbers(pl.DataFrame({"k": [1]}, schema={"k": pl.Int64}), ["k"]).tolist() == [-1712319331]


def test_columns_that_cannot_be_hashed_do_not_contribute():
    frame = pl.DataFrame({"l": [[1], [2]], "k": [1, 2]})
    assert key_numbers(frame, ["l"]).tolist() == [0, 0]
    assert key_numbers(frame, ["l", "k"]).tolist() == key_numbers(frame, ["k"]).tolist()
    assert key_numbers(frame, []).tolist() == [0, 0]


def test_mixed_numbers_are_spread_evenly_and_depend_on_each_part():
    drawn = mixed(np.arange(64_000), 5)
    counts = np.bincount((drawn >> np.uint64(58)).astype(np.int64), minlength=64)
    assert counts.min() > 850
    assert counts.max() < 1150
    assert not (drawn == mixed(np.arange(64_000), 6)).any()
    assert (drawn == mixed(np.arange(64_000), 5)).all()
