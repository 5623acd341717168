"""The columns of pending rows: taken, put, grown, and stored in as few bytes as they need."""

import dataclasses
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.queue.cells import Cells

NAMES = [field.name for field in dataclasses.fields(Cells)]
LOWEST, HIGHEST = -(2**63), 2**63 - 1


def cells(n, **columns):
    made = Cells.empty(n)
    for name, column in columns.items():
        getattr(made, name)[:] = column
    return made


def columns_of(held):
    return {name: getattr(held, name).tolist() for name in NAMES}


def test_rows_are_taken_and_put():
    held = cells(4, number=[5, 6, 7, 8], weight=[0.5, 1.5, 2.5, 3.5], state=[0, 1, 2, 1])
    taken = held.take(np.array([3, 1]))
    assert (taken.number.tolist(), taken.weight.tolist(), taken.state.tolist()) == ([8, 6], [3.5, 1.5], [1, 1])
    held.put(np.array([0, 2]), taken)
    assert (held.number.tolist(), held.weight.tolist()) == ([8, 6, 6, 8], [3.5, 1.5, 1.5, 3.5])
    assert held.take(held.state == 2).number.tolist() == []


def test_room_is_made_for_half_as_many_more():
    held = cells(2, number=[5, 6])
    assert held.grown(2) is held
    assert held.grown(1) is held
    more = held.grown(5)
    assert (len(more), more.number.tolist()) == (7, [5, 6, 0, 0, 0, 0, 0])


@pytest.mark.parametrize(
    ("low", "spread", "width"),
    [
        (7, 0, 0),
        (-5, 1, 1),
        (-5, 255, 1),
        (9, 256, 2),
        (9, 65_535, 2),
        (9, 65_536, 4),
        (9, 2**32 - 1, 4),
        (9, 2**32, 8),
    ],
)
def test_a_column_takes_as_few_bytes_as_its_spread_needs(low, spread, width):
    held = cells(2, time=[low, low + spread])
    stored = held.to_bytes()
    assert len(stored) == 8 + 9 * len(NAMES) + 2 * width
    assert struct.unpack_from("<q", stored) == (2,)
    at = 8 + 9 * NAMES.index("time")
    assert struct.unpack_from("<qB", stored, at) == (0 if width == 8 else low, width)
    assert columns_of(Cells.from_bytes(stored)) == columns_of(held)


int64s = st.one_of(st.integers(-3, 300), st.integers(LOWEST, HIGHEST))
floats = st.one_of(st.just(1.0), st.floats(0, 1e300))


@given(st.lists(st.tuples(int64s, int64s, floats, st.integers(-128, 127)), max_size=5))
def test_what_is_stored_is_read(rows):
    number, ready, weight, state = ([row[i] for row in rows] for i in range(4))
    held = cells(len(rows), number=number, ready_at_us=ready, weight=weight, state=state)
    for stored in (held.to_bytes(), bytearray(held.to_bytes())):
        read = Cells.from_bytes(stored)
        assert columns_of(read) == columns_of(held)
        assert {name: getattr(read, name).dtype for name in NAMES} == {
            name: getattr(held, name).dtype for name in NAMES
        }
