"""Which of a batch's rows stand for a key, worked out by hand."""

import numpy as np

from upstream.sink.merge.batch_rows import as_pending
from upstream.sink.merge.newest_rows import contest, newest_rows

from .rows import data, full, layout, shown


def test_the_newest_row_of_a_key_stands_for_all():
    rows = full(
        ("a", 5, "later", 9, 10, 7, 2, False),
        ("b", 1, "only", 3, 11, 8, 3, True),
        ("a", 5, "sooner", 4, 12, 5, 4, False),
        ("a", 4, "older", 8, 13, 6, 1, True),
    )
    newest = newest_rows(rows, layout())
    assert shown(newest) == [("a", 5, "later", 7), ("b", 1, "only", 3)]
    assert newest.first_arrival_us is not None
    assert newest.deleted is not None
    assert (newest.first_arrival_us.tolist(), newest.deleted.tolist()) == ([5, 8], [False, True])
    assert newest_rows(rows, layout(keep=None)) is rows
    assert newest_rows(rows.slice(0, 0), layout()).rows.num_rows == 0
    by_arrival = newest_rows(rows, layout(time=None))
    assert shown(by_arrival) == [("b", 1, "only", 3), ("a", 4, "older", 7)]
    plain = newest_rows(as_pending(rows.rows), layout(time=None))
    assert shown(plain) == [("a", 5, "later", 3), ("b", 1, "only", 1)], "without arrivals by their numbers"
    assert plain.first_arrival_us is None
    in_order = newest_rows(as_pending(data(("a", 1, "x", 1), ("a", 1, "y", 1), ("b", 1, "z", 2))), layout())
    assert shown(in_order) == [("a", 1, "y", 2), ("b", 1, "z", 1)]


def test_several_rows_of_a_key_stand_for_themselves():
    rows = full(
        ("a", 5, "1st", 9, 10, 7, 2, False),
        ("a", 6, "2nd", 4, 12, 5, 4, False),
        ("a", 4, "3rd", 8, 13, 6, 1, False),
    )
    assert shown(newest_rows(rows, layout(keep=2))) == [("a", 5, "1st", 2), ("a", 6, "2nd", 4)]
    plain = as_pending(data(("a", 1, "x", 0), ("a", 3, "y", 1), ("a", 2, "z", 2)))
    assert shown(newest_rows(plain, layout(keep=2))) == [("a", 3, "y", 1), ("a", 2, "z", 1)]


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
