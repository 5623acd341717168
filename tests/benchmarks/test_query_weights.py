"""The mean staleness of a table, by hand."""

import pytest

S = 1_000_000


def test_a_table_is_stale_from_the_oldest_row_that_it_lacks_to_the_commit(benchmark_module):
    mean_staleness_s = benchmark_module("query_weights").mean_staleness_s
    # Rows came at 1 and at 5: ramps of 3 and 4 s within 10 s.
    assert mean_staleness_s([(1 * S, 4 * S), (5 * S, 9 * S)], 0, 10 * S) == pytest.approx((4.5 + 8) / 10)
    # What waits at the end is stale until then; a commit of later rows shows nothing.
    waits = [(1 * S, 4 * S), (8 * S, 12 * S), (11 * S, 13 * S)]
    assert mean_staleness_s(waits, 0, 10 * S) == pytest.approx((4.5 + 2) / 10)
    assert mean_staleness_s([(11 * S, 13 * S)], 0, 10 * S) == 0
    # Commits of an earlier run do not count.
    assert mean_staleness_s([(1 * S, 2 * S), (5 * S, 9 * S)], 3 * S, 10 * S) == pytest.approx(8 / 7)
