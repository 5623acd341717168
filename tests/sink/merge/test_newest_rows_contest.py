"""Which of a batch's rows win against what a table holds, worked out by hand."""

import numpy as np

from upstream.sink.merge.newest_rows import contest

from .rows import data, layout


def test_who_wins_against_what_is_held():
    held = data(("a", 5, "", 3), ("b", 5, "", 3), ("c", 5, "", 3), ("d", 5, "", 3))
    new = data(("d", 4, "", 9), ("c", 5, "", 2), ("b", 5, "", 3), ("e", 0, "", 0), ("a", 6, "", 0), ("x", 1, "", None))
    found = contest(held, new, layout())
    assert found.rival.tolist() == [3, 2, 1, -1, 0, -1]
    assert found.won.tolist() == [False, False, True, True, True, True]
    assert found.tied.tolist() == [False, True, True, False, False, False]
    assert found.stays(4).tolist() == [False, False, True, True]
    assert found.stays(4, np.zeros(6, dtype=np.bool_)).tolist() == [True] * 4
    unnumbered = contest(held, data(("a", 5, "", None), ("b", 4, "", None)), layout())
    assert unnumbered.won.tolist() == [True, False], "it came after what is held"
    by_arrival = contest(held, new, layout(time=None))
    assert (by_arrival.won.tolist(), by_arrival.tied.tolist()) == ([True] * 6, [False] * 6)
    empty = contest(held.slice(0, 0), new, layout())
    assert (empty.rival.tolist(), empty.won.tolist(), empty.tied.tolist()) == ([-1] * 6, [True] * 6, [False] * 6)
