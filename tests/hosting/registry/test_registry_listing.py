from dataclasses import dataclass
from datetime import datetime, timezone

from kit.failures import misused
from kit.registries import COUNTS, FAST, register

from upstream.hosting.registry.changes import Change
from upstream.hosting.registry.edits import record
from upstream.hosting.registry.registry import listed, text_of


def test_queries_are_listed_in_the_order_of_registration(checkpoint):
    for name in ("z", "a", "m"):
        registry = register(checkpoint, name)
    assert listed(registry, {}, 0)["name"].to_list() == ["z", "a", "m"]
    registry = record(checkpoint, Change("fail", "z", reason="overflow", id=1))
    assert listed(registry, {}, 0).row(0) == ("z", COUNTS, 1.0, False, "overflow", None, None, None)
    assert record(checkpoint, Change("alter", "z", weight=2)).queries.keys() == registry.queries.keys()


@dataclass
class Report:
    whole_from: int | None
    staleness_s: float | None
    waiting_since_us: int | None = None


def test_reports_are_those_of_the_incarnation_and_results_that_wait_become_older(checkpoint):
    for name in ("a", "b", "c", "d"):
        registry = register(checkpoint, name)
    waits = Report(1_700_000_000_000_000, 0.25, 3_000_000)
    reports = {1: waits, 2: Report(-(1 << 62), None), 3: Report(None, 1.5, 6_000_000)}
    assert listed(registry, reports, 5_500_000).select("name", "whole_from", "staleness", "waiting").rows() == [
        ("a", datetime(2023, 11, 14, 22, 13, 20, tzinfo=timezone.utc), 0.25, 2.5),
        ("b", datetime(1, 1, 1, tzinfo=timezone.utc), None, None),
        ("c", None, 1.5, 0.0),
        ("d", None, None, None),
    ]
    again = record(checkpoint, Change("alter", "a", FAST))
    assert listed(again, reports, 0).row(0)[-3:] == (None, None, None), "it has begun again"
    resting = record(checkpoint, Change("deactivate", "c"))
    assert listed(resting, reports, 7_000_000).row(2)[-1] is None


def test_texts_are_found_by_name(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    registry = register(checkpoint, "per-route")
    assert text_of("Per-Route", registry) == COUNTS
    assert text_of("FAST", registry) == "SELECT * FROM `fast`"
    assert text_of(FAST, registry) == FAST
    for word in ("per-rout", " fas "):
        misused("did you mean", text_of, word, registry)
