"""Reports of queries: each batch counts once."""

from datetime import datetime, timezone

import pytest
from kit.registries import COUNTS, FAST, begun, register

from upstream.core.feedback.checkpoint_layout import query_queue_folder
from upstream.core.feedback.reports import QueueReport, read_reports, write_report
from upstream.hosting.edits import record
from upstream.hosting.journal import Change
from upstream.hosting.output import BatchOutcome
from upstream.hosting.reports import (
    HostTimes,
    PartsReport,
    QueryCost,
    QueryReport,
    Reports,
    completeness,
    listed,
    part_costs,
    query_costs,
    whole_cost,
)
from upstream.storage.folder import folder_at


def test_the_reports_of_the_queues_of_queries_that_ended_are_removed(tmp_path):
    folder = folder_at(str(tmp_path))
    places = [query_queue_folder(str(tmp_path), number) for number in (1, 12)]
    for place in places:
        write_report(place, QueueReport(0, waiting=1))
    reports = Reports(folder)
    reports.take(0, BatchOutcome(), [1, 2, 12], {})
    assert all(read_reports(each, QueueReport) for each in places)
    reports.take(1, BatchOutcome(), [2, 12], {})
    assert [each.name for each in folder.listing("upstream-stages/0")] == ["queue-12"]
    assert read_reports(places[1], QueueReport)
    Reports(folder).take(2, BatchOutcome(), [2], {})
    assert folder.listing("upstream-stages/0") == []


def test_batches_add_up_over_restarts_and_repeats(tmp_path):
    folder = folder_at(str(tmp_path))
    reports = Reports(folder)
    assert reports.read() == {}
    reports.take(0, BatchOutcome(rows={1: 3}, began={1: 7}, late={1: 1}), [1, 2], {1: (100, 0.5)})
    first = QueryReport(True, 7, 3, 1, 0, 100, 0.5)
    assert reports.read() == {1: first, 2: QueryReport()}
    for again in (reports, Reports(folder)):  # in the same process, or after a restart
        again.take(0, BatchOutcome(rows={1: 3}, late={1: 1}), [1, 2], {})
        assert again.read()[1] == first
    again = Reports(folder)
    again.take(1, BatchOutcome(), [1, 2], {})
    again.take(2, BatchOutcome(rows={1: 2}, began={2: None}), [1, 2], {1: (200, None)})
    assert Reports(folder).read() == {1: QueryReport(True, 7, 5, 1, 2, 200, None), 2: QueryReport(begun=True)}
    again.take(3, BatchOutcome(late={2: 4}), [2], {})
    assert Reports(folder).read() == {2: QueryReport(begun=True, late=4)}


def test_what_waits_is_there_until_it_is_put_out(tmp_path):
    reports = Reports(folder_at(str(tmp_path)))
    reports.take(0, BatchOutcome(began={1: 0, 2: 0}, waiting={1: 70, 2: 90}), [1, 2], {})
    assert {number: each.waiting_since_us for number, each in reports.read().items()} == {1: 70, 2: 90}
    reports.take(1, BatchOutcome(waiting={1: 70}, failed={1: ("one", "a cast")}), [1, 2], {})
    assert {number: each.waiting_since_us for number, each in reports.read().items()} == {1: None, 2: None}
    reports.take(2, BatchOutcome(waiting={2: 80}), [1, 2], {})
    reports.take(3, BatchOutcome(), [1, 2], {})
    assert reports.host().batch == 3, "what waited has added up to nothing"
    assert reports.read()[2].waiting_since_us is None
    reports.take(4, BatchOutcome(), [1, 2], {})
    assert reports.host().batch == 3, "nothing has happened"


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path, caplog):
    (tmp_path / "queries").mkdir()
    (tmp_path / "queries" / ".staged").write_text("")  # as a full or a read-only disk: each write is an OSError
    reports = Reports(folder_at(str(tmp_path)))
    reports.take(0, BatchOutcome(rows={1: 3}), [1], {})
    assert "the report of the queries cannot be written" in caplog.text
    (tmp_path / "queries" / ".staged").unlink()
    reports.take(1, BatchOutcome(rows={1: 4}), [1], {})
    assert reports.read()[1].rows == 7


def test_a_part_counts_for_each_of_its_readers_and_alone_for_its_only_one():
    one = PartsReport(
        0, 3, 0, 1.0, {"e": (3, [["shared", [1, 2], 0.2, 0.4, 5, 100, []], ["own", [1], 0, 0.1, 1, 6, []]])}
    )
    other = PartsReport(1, 3, 0, 1.0, {"e": (2, [["shared", [1, 2], 0.3, 0.2, 1, 50, ["slices"]]])})
    seconds, size = query_costs([[one, other], []])[1]
    assert size == QueryCost(share=81, whole=156, alone=6)
    assert (seconds.share, seconds.whole, seconds.alone) == pytest.approx((0.4, 0.7, 0.1))
    assert query_costs([[one], [other]])[2][1] == QueryCost(share=75, whole=150, alone=0)
    costs = part_costs([[one], [other]])
    assert costs["shared"][1:6] == ([1, 2], 0.5, pytest.approx(0.6), 6, 150)
    assert part_costs([[one, other]], 3).keys() == {"shared"}, "the other part had no work in that batch"
    assert part_costs([[one, other]], 3)["shared"].spent_s == 0.2
    slices = {"slices": costs["own"]._replace(bytes=7), "windows": costs["own"]._replace(beside=["slices", "gone"])}
    windows = whole_cost("windows", slices)
    assert windows is not None
    assert (windows.rows, windows.bytes, windows.average_s, windows.keys) == (1, 13, 0.2, ("own", "slices", "gone"))
    assert whole_cost("none", slices) is None


def test_costs_and_durations_fade(tmp_path):
    reports = Reports(folder_at(str(tmp_path)))
    reports.take(0, BatchOutcome(rows={1: 9}), [1, 2], {}, HostTimes(committed_s=3.0), {1: 1.0})
    assert (reports.host().batch_s, reports.host().fixed_s, reports.read()[1].cost_s) == (3.0, 2.0, 1.0)
    again = Reports(folder_at(str(tmp_path)))
    again.take(1, BatchOutcome(rows={1: 9, 2: 1}), [1, 2], {}, HostTimes(committed_s=6.0), {1: 2.0, 2: 1.0})
    assert reports.host() == again.host()
    assert (again.host().batch_s, again.host().fixed_s) == (6.0, 2.3)
    assert {number: each.cost_s for number, each in again.read().items()} == {1: 1.3, 2: 1.0}
    again.take(2, BatchOutcome(rows={2: 1}), [1, 2], {}, HostTimes(committed_s=2.15), {2: 1.0})
    assert again.read()[1].cost_s == 1.3
    assert again.host().fixed_s == 1.955, "half of what was foretold is near enough"
    again.take(3, BatchOutcome(rows={2: 1}), [1, 2], {}, HostTimes(committed_s=3.9), {2: 2.01})
    assert (again.host().fixed_s, again.read()[2].cost_s) == (1.9355, 2.01), "what was far from true is forgotten"
    again.take(4, BatchOutcome(rows={2: 1}), [1, 2], {}, HostTimes(committed_s=0.5), {2: 2.0})
    assert again.host().fixed_s == 0.0, "never below nothing"


def test_how_often_a_query_has_results(tmp_path):
    reports = Reports(folder_at(str(tmp_path)))

    def after(batch, outcome):
        reports.take(batch, outcome, [1, 2], {})
        return {number: each.likely for number, each in reports.read().items()}

    assert after(0, BatchOutcome(began={1: 0}, rows={1: 1})) == {1: 1.0, 2: 1.0}
    assert after(1, BatchOutcome(rows={2: 1})) == {1: 0.7, 2: 1.0}, "before it has begun nothing is known"
    assert after(2, BatchOutcome(waiting={1: 50})) == {1: 0.79, 2: 1.0}
    assert after(3, BatchOutcome(waiting={1: 50}, rows={2: 1})) == {1: 0.79, 2: 1.0}, "who knows what it has had"
    assert after(4, BatchOutcome(rows={1: 3})) == {1: 0.79, 2: 1.0}
    assert after(5, BatchOutcome()) == {1: 0.79, 2: 1.0}, "nothing came"


def test_queries_are_listed_in_the_order_of_registration(tmp_path):
    checkpoint = begun(tmp_path)
    for name in ("z", "a", "m"):
        registry = register(checkpoint, name)
    assert listed(registry, {}, 0)["name"].to_list() == ["z", "a", "m"]
    registry = record(checkpoint, Change("fail", "z", reason="overflow", id=1))
    assert listed(registry, {}, 0).row(0) == ("z", COUNTS, 1.0, False, "overflow", None, 0, None, None, None)
    assert record(checkpoint, Change("alter", "z", weight=2)).queries.keys() == registry.queries.keys()


def test_reports_are_those_of_the_incarnation_and_results_that_wait_become_older(tmp_path):
    checkpoint = begun(tmp_path)
    for name in ("a", "b", "c", "d"):
        registry = register(checkpoint, name)
    waits = QueryReport(complete_from=1_700_000_000_000_000, staleness_s=0.25, waiting_since_us=3_000_000)
    reports = {
        1: waits,
        2: QueryReport(complete_from=-(1 << 62)),
        3: QueryReport(staleness_s=1.5, committed_at_us=5_000_000, waiting_since_us=6_000_000),
    }
    assert listed(registry, reports, 5_500_000).select("name", "complete_from", "staleness", "waiting").rows() == [
        ("a", datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc), 0.25, 2.5),
        ("b", datetime(1, 1, 1, tzinfo=timezone.utc), None, None),
        ("c", None, 1.5, 0.0),
        ("d", None, None, None),
    ]
    late = listed(registry, {2: QueryReport(complete_from=-(1 << 62), late=3)}, 0)
    assert late.select("complete_from", "late").row(1) == (None, 3)
    texts = {count: completeness(QueryReport(complete_from=-(1 << 62), late=count)) for count in (0, 1, 3)}
    assert texts == {
        0: "the beginning",
        1: "the beginning, but for 1 late row",
        3: "the beginning, but for 3 late rows",
    }
    assert completeness(QueryReport(late=2)) == "unknown, but for 2 late rows"
    assert listed(registry, reports, 5_500_000)["committed_at"][2] == datetime(1970, 1, 1, 0, 0, 5, tzinfo=timezone.utc)
    again = record(checkpoint, Change("alter", "a", FAST))
    assert listed(again, reports, 0).row(0)[-5:] == (None, 0, None, None, None), "it has begun again"
    resting = record(checkpoint, Change("deactivate", "c"))
    assert listed(resting, reports, 7_000_000).row(2)[-1] is None
