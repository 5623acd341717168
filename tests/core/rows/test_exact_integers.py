"""Whole numbers at the edges of 64 bits: right, or refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.exact_integers import HIGHEST, LOWEST, affine, as_int64, fits, floor_div

edges = st.one_of(st.integers(LOWEST, LOWEST + 3), st.integers(-5, 5), st.integers(HIGHEST - 3, HIGHEST))
wide = st.integers(-(2**66), 2**66)
divisors = st.one_of(st.integers(1, 12), st.integers(HIGHEST - 3, HIGHEST))


def test_what_fits():
    assert [fits(value) for value in (LOWEST - 1, LOWEST, 0, HIGHEST, HIGHEST + 1)] == [False, True, True, True, False]


def test_arrays_of_any_width_become_int64():
    same = np.array([1, 2])
    assert as_int64(same) is same
    assert as_int64(7).shape == ()
    for kind in ("i1", "u2", "u8"):
        found = as_int64(np.array([0, 7], dtype=kind))
        assert (found.dtype, found.tolist()) == (np.dtype(np.int64), [0, 7])
    assert as_int64(np.array([], dtype="f8")).dtype == np.int64, "nothing is of any type"
    assert as_int64(np.array([HIGHEST], dtype=np.uint64)).tolist() == [HIGHEST]
    for value in (2**63, -(2**63) - 1, 2**70, np.array([3, 2**63], dtype=np.uint64)):
        with pytest.raises(OptionError, match="64 bits"):
            as_int64(value)
    for value in (np.array([1, None]), np.array([2**70]), "a", None):
        with pytest.raises(SchemaError, match="whole numbers"):
            as_int64(value)


@given(values=st.lists(edges, max_size=4), factor=divisors, add=wide)
def test_affine(values, factor, add):
    wanted = [value * factor + add for value in values]
    given_values = np.array(values, dtype=np.int64)
    if all(map(fits, wanted)):
        found = affine(given_values, factor, add)
        assert (found.dtype, found.tolist()) == (np.dtype(np.int64), wanted)
    else:
        with pytest.raises(OptionError, match="64 bits"):
            affine(given_values, factor, add)


@given(values=st.lists(edges, max_size=4), divisor=divisors, shift=wide, add=wide)
def test_floor_div(values, divisor, shift, add):
    wanted = [(value + shift) // divisor + add for value in values]
    given_values = np.array(values, dtype=np.int64)
    if all(map(fits, wanted)):
        assert floor_div(given_values, divisor, shift=shift, add=add).tolist() == wanted
    else:
        with pytest.raises(OptionError, match="64 bits"):
            floor_div(given_values, divisor, shift=shift, add=add)


@given(values=st.lists(edges, max_size=4), divisor=divisors, shift=st.integers(LOWEST, 2**63), add=st.integers(-3, 1))
def test_floor_div_saturates(values, divisor, shift, add):
    wanted = [min(max((value + shift) // divisor + add, LOWEST), HIGHEST - 1) for value in values]
    assert floor_div(np.array(values, dtype=np.int64), divisor, shift=shift, add=add, saturate=True).tolist() == wanted


def test_single_numbers_and_what_is_not_said():
    assert affine(5, 2, 1).shape == ()
    assert int(floor_div(-7, 2)) == -4
    assert floor_div(7, 2).shape == ()
    assert floor_div(np.array([[1, 2], [3, 4]]), 2).tolist() == [[0, 1], [1, 2]]
    assert affine(np.arange(6)[::2], 3, 0).tolist() == [0, 6, 12]
    with pytest.raises(OptionError, match="reaches 9223372036854775808"):
        affine(np.array([1, HIGHEST]), 1, 1)
    with pytest.raises(OptionError, match="reaches -9223372036854775809"):
        floor_div(np.array([LOWEST]), 1, add=-1)
