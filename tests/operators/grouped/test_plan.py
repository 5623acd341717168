"""Columns and identity of windows by group."""

from upstream.operators.grouped.plan import WINDOW, GroupWindowPlan
from upstream.operators.windows.kinds import SlidingWindows

from .window_rows import plan


def test_in_a_window_each_key_has_one_row_and_in_a_table_one_of_all():
    window, table = plan(SlidingWindows(10, 5)), plan(SlidingWindows(10, 5), newest="table")
    assert (window.side.key, window.side.on) == (("k", WINDOW), ("g", WINDOW))
    assert (table.side.key, table.side.on) == (("k",), ("g",))
    assert "t" in table.side.values  # by which a row is taken out of its windows again
    assert (window.ends, table.ends) == (True, False)
    assert window.groups.side.on == table.groups.side.on == ("g", WINDOW)


def test_a_group_that_is_part_of_the_key_needs_no_stage():
    asked = plan(SlidingWindows(10, 5))
    stays = GroupWindowPlan(asked.window, ("k", "g"), "t")
    assert (asked.stays, stays.stays) == (False, True)
    assert stays.taken == asked.window.schema
    assert asked.taken == asked.side.versioned
