"""What belongs to one session, against a loop over rows."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.core.rows.exact_integers import HIGHEST, LOWEST
from upstream.operators.aggregates.algebra import Aggregates
from upstream.operators.aggregates.functions import count, max_
from upstream.operators.windows.sessions import Sessions, SessionWindows, ended, joined

PARTS = st.lists(st.tuples(st.integers(0, 3), st.integers(-30, 30), st.integers(0, 9)), max_size=25)


def by_hand(parts, gap):
    """Sets of parts, which begin at most a gap after the last end of those before."""
    groups, last = [], {}
    for at in sorted(range(len(parts)), key=lambda at: parts[at]):
        key, start, length = parts[at]
        if key not in last or start > last[key] + gap:
            groups.append(set())
        groups[-1].add(at)
        last[key] = max(last.get(key, start), start + length)
    return groups


@given(PARTS, st.integers(1, 10))
def test_parts_that_overlap_or_lie_at_most_a_gap_apart_are_joined(parts, gap):
    codes, start, length = (np.array([part[at] for part in parts], dtype=np.int64) for at in range(3))
    of_part, first, size = joined(codes, start, start + length, gap)
    found = [set(np.flatnonzero(of_part == number).tolist()) for number in range(size)]
    assert sorted(map(sorted, found)) == sorted(map(sorted, by_hand(parts, gap)))
    assert [start[at] for at in first] == [min(start[list(mine)]) for mine in found]
    order = [(codes[at], start[at]) for at in first]
    assert order == sorted(order)


@given(PARTS, st.integers(1, 10), st.randoms())
def test_rows_lifted_apart_and_merged_are_the_rows_lifted_together(rows, gap, chance):
    table = pa.table({"k": [row[0] for row in rows], "v": [row[2] for row in rows]}, schema=pa.schema(
        [("k", pa.int64()), ("v", pa.int64())]
    ))  # fmt: skip
    times = np.array([row[1] for row in rows], dtype=np.int64)
    algebra = Aggregates.of({"n": count(), "top": max_("v")}, table.schema)
    at = chance.randint(0, len(rows))  # pyright: ignore[reportAttributeAccessIssue]
    parts = [
        Sessions.lifted(algebra, table.slice(low, high - low), ["k"], times[low:high], gap)[0]
        for low, high in ((0, at), (at, len(rows)))
    ]
    merged, _, _ = Sessions.concat(parts).merged(algebra, gap)
    whole, of_row = Sessions.lifted(algebra, table, ["k"], times, gap)
    assert merged.table().equals(whole.table())
    assert (np.bincount(of_row, minlength=len(whole)) == algebra.lower(whole.state).column("n").to_numpy()).all()
    again = Sessions.of(whole.table(), ["k"], algebra.state_schema.names)
    assert again.table().equals(whole.table())


def test_the_ends_of_time_are_no_other_time():
    codes, times = np.zeros(2, dtype=np.int64), np.array([LOWEST, HIGHEST])
    assert joined(codes, times, times, 5)[2] == 2
    last, bounds = np.array([LOWEST, 0, 0, 0, HIGHEST]), np.array([LOWEST, 5, 6, LOWEST + 2, HIGHEST])
    assert ended(last, bounds, 5).tolist() == [False, False, True, False, True]
    assert ended(np.array([0, 0]), np.array([8, 9]), 5, lateness=3).tolist() == [False, True]


def test_a_session_is_complete_once_no_row_can_join_it():
    windows = SessionWindows(5)
    assert [int(windows.last_complete(bound)) for bound in (6, LOWEST, LOWEST + 3)] == [0, LOWEST, LOWEST]
    assert int(windows.last_complete(HIGHEST)) == HIGHEST - 6
    assert [int(each) for each in windows.extent(3)] == [3, 4]
    assert int(windows.last_instant(3)) == 7
