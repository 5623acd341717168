"""Reports of queries: each batch counts once."""

from __future__ import annotations

from upstream.queries.hosting.outcome import Began, Outcome
from upstream.queries.hosting.reports import QueryReport, Reports
from upstream.storage.folder import folder_at


def test_batches_add_up_over_restarts_and_repeats(tmp_path):
    folder = folder_at(str(tmp_path))
    reports = Reports(folder)
    assert reports.read() == {}
    reports.take(0, Outcome(rows={1: 3}, began={1: Began(7)}, late={1: 1}), [1, 2], {1: (100, 0.5)})
    first = QueryReport(True, 7, 3, 1, 0, 100, 0.5)
    assert reports.read() == {1: first, 2: QueryReport()}
    for again in (reports, Reports(folder)):  # in the same process, or after a restart
        again.take(0, Outcome(rows={1: 3}, late={1: 1}), [1, 2], {})
        assert again.read()[1] == first
    again = Reports(folder)
    again.take(1, Outcome(), [1, 2], {})
    again.take(2, Outcome(rows={1: 2}, began={2: Began(None)}), [1, 2], {1: (200, None)})
    assert Reports(folder).read() == {1: QueryReport(True, 7, 5, 1, 2, 200, None), 2: QueryReport(begun=True)}
    again.take(3, Outcome(late={2: 4}), [2], {})
    assert Reports(folder).read() == {2: QueryReport(begun=True, late=4)}
