"""What is not possible is refused before it is journaled, whoever else writes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.registries import COUNTS, FAST, OF_FAST, begun, register

from upstream.conf.errors import OptionError, QueryRefusedError, UpstreamError
from upstream.queries.registry.changes import Change
from upstream.queries.registry.editing import record
from upstream.queries.registry.journal import Journal
from upstream.queries.registry.registry import registry_at, registry_now

OTHER = "SELECT vehicle_id, speed FROM LATEST(buses)"


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return begun(tmp_path)


def refused(checkpoint: str, change: Change, part: str, error: type[Exception] = OptionError) -> None:
    """Check that a change is refused, and the journal stays as it was."""
    before = Journal(checkpoint).version()
    with pytest.raises(error, match=part):
        record(checkpoint, change)
    assert Journal(checkpoint).version() == before


def test_names_of_queries_views_and_streams_are_apart(checkpoint: str) -> None:
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "slow")
    refused(checkpoint, Change("register", "SLOW", OTHER), "a query 'slow' already, with another text")
    refused(checkpoint, Change("register", "Fast", COUNTS), "a view 'fast' already")
    refused(checkpoint, Change("register", "BUSES", COUNTS), "a stream 'buses' already")
    refused(checkpoint, Change("register", "12", COUNTS), "cannot name a query")
    refused(checkpoint, Change("register", "../up", COUNTS), "cannot name a query")
    refused(checkpoint, Change("view", "Slow", FAST), "a query 'slow' already")
    refused(checkpoint, Change("view", "FAST", OTHER), "a view 'fast' already, with another text")
    refused(checkpoint, Change("view", "trade", OTHER), "taken")
    refused(checkpoint, Change("view", "a/b", OTHER), "cannot name a view")


def test_unknown_names_are_answered_with_near_ones(checkpoint: str) -> None:
    register(checkpoint, "per_route")
    for kind in ("activate", "deactivate", "drop"):
        refused(checkpoint, Change(kind, "per_rout"), "did you mean 'per_route'")  # type: ignore[arg-type]
    refused(checkpoint, Change("alter", "per_rout", COUNTS), "did you mean 'per_route'")
    refused(checkpoint, Change("drop_view", "per_route"), "no view 'per_route'")


def test_texts_are_bound_before_they_are_journaled(checkpoint: str) -> None:
    register(checkpoint, "q")
    bad = "SELECT vehicel_id FROM LATEST(buses)"
    for kind in ("register", "view"):
        refused(checkpoint, Change(kind, "new", bad), "did you mean 'vehicle_id'", QueryRefusedError)  # type: ignore[arg-type]
    refused(checkpoint, Change("alter", "q", bad), "did you mean 'vehicle_id'", QueryRefusedError)
    refused(checkpoint, Change("register", "new", " "), "the text of 'new'", QueryRefusedError)
    refused(checkpoint, Change("view", "new", COUNTS + " EMIT CHANGES"), "EMIT is for the query", QueryRefusedError)
    refused(checkpoint, Change("view", "new", "SELECT * FROM new"), "reads itself", QueryRefusedError)


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), True, "2"])
def test_weights_are_numbers_above_0(checkpoint: str, weight: float) -> None:
    register(checkpoint, "q")
    refused(checkpoint, Change("register", "new", COUNTS, weight=weight), "weight=")
    refused(checkpoint, Change("alter", "q", weight=weight), "weight=")


@pytest.mark.parametrize("buckets", [0, 1.5, 1025, True])
def test_buckets_are_whole_numbers(checkpoint: str, buckets: int) -> None:
    refused(checkpoint, Change("register", "new", COUNTS, buckets=buckets), "buckets=")


def test_what_holds_already_is_not_journaled(checkpoint: str) -> None:
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "q", weight=2)
    for change in (
        Change("register", "q", COUNTS),
        Change("register", "Q", COUNTS, weight=5),
        Change("view", "Fast", FAST),
        Change("alter", "q", COUNTS),
        Change("alter", "q", COUNTS, weight=2),
        Change("activate", "q"),
        Change("fail", "q", reason="old", id=1),
        Change("fail", "gone", reason="old", id=1),
    ):
        assert record(checkpoint, change).version == 2, change
    assert record(checkpoint, Change("deactivate", "q")).version == 3
    assert record(checkpoint, Change("deactivate", "q", reason="again")).version == 3
    assert record(checkpoint, Change("register", "q", COUNTS)).version == 3, "what an operator stopped stays so"
    refused(checkpoint, Change("alter", "q"), "nothing to alter")


def test_names_are_journaled_as_they_are_registered(checkpoint: str) -> None:
    register(checkpoint, "Q")
    assert record(checkpoint, Change("alter", "q", weight=3)).queries["Q"].weight == 3.0
    assert not record(checkpoint, Change("deactivate", "q")).queries["Q"].active
    assert record(checkpoint, Change("drop", "q")).queries == {}


def test_an_alteration_of_both_is_journaled_as_one(checkpoint: str) -> None:
    register(checkpoint, "q")
    altered = record(checkpoint, Change("alter", "q", OTHER, weight=2))
    assert altered.version == 2
    assert (altered.queries["q"].text, altered.queries["q"].weight, altered.queries["q"].id) == (OTHER, 2.0, 2)


def test_a_failure_is_of_the_incarnation_that_failed(checkpoint: str) -> None:
    register(checkpoint, "q")
    failed = record(checkpoint, Change("fail", "q", reason="overflow", id=1))
    assert (failed.queries["q"].active, failed.queries["q"].reason) == (False, "overflow")
    again = record(checkpoint, Change("activate", "q"))
    assert again.queries["q"].id == 3
    assert record(checkpoint, Change("fail", "q", reason="overflow", id=1)).active.keys() == {"q"}


def test_a_view_in_use_stays(checkpoint: str) -> None:
    record(checkpoint, Change("view", "fast", FAST))
    record(checkpoint, Change("view", "faster", "SELECT * FROM fast WHERE speed > 20"))
    refused(checkpoint, Change("drop_view", "FAST"), "in use by the view 'faster'")
    register(checkpoint, "q", "SELECT route_id, COUNT(*) AS n FROM faster GROUP BY route_id")
    record(checkpoint, Change("deactivate", "q"))
    refused(checkpoint, Change("drop_view", "faster"), "in use by the query 'q'")
    refused(checkpoint, Change("drop_view", "fast"), "in use by the query 'q', the view 'faster'")
    record(checkpoint, Change("drop", "q"))
    record(checkpoint, Change("drop_view", "faster"))
    assert record(checkpoint, Change("drop_view", "Fast")).catalog.views == {}


def test_an_idle_query_without_a_plan_keeps_its_view(checkpoint: str) -> None:
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "idle", OF_FAST, active=False)
    refused(checkpoint, Change("drop_view", "fast"), "in use by the query 'idle'")


def test_a_view_may_be_a_stream(checkpoint: str) -> None:
    record(checkpoint, Change("view", "moves", f"ISTREAM({FAST})"))
    counts = "SELECT route_id, COUNT(*) AS n FROM moves [RANGE 1 HOUR] GROUP BY route_id"
    assert register(checkpoint, "q", counts).queries["q"].query.views == ("moves",)


def test_two_writers_of_one_name_do_not_both_win(checkpoint: str) -> None:
    def attempt(at: int) -> str | None:
        try:
            record(checkpoint, Change("register", "q", COUNTS if at % 2 else OTHER))
        except OptionError as error:
            return str(error)
        return None

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(attempt, range(8)))
    registry = registry_now(checkpoint)
    assert registry.version == 1
    wrong = [at for at, answer in enumerate(answers) if answer is not None]
    assert len(wrong) == 4
    assert {at % 2 for at in wrong} == {0 if registry.queries["q"].text == COUNTS else 1}


def test_a_view_cannot_go_while_another_process_begins_to_use_it(
    checkpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change of the other comes between the check and the file."""
    record(checkpoint, Change("view", "fast", FAST))
    put, others = Journal.put, [Change("register", "q", OF_FAST)]

    def interrupted(self: Journal, version: int, change: Change) -> bool:
        if others and change.kind == "drop_view":
            assert put(self, version, others.pop())
        return put(self, version, change)

    monkeypatch.setattr(Journal, "put", interrupted)
    with pytest.raises(OptionError, match="in use by the query 'q'"):
        record(checkpoint, Change("drop_view", "fast"))
    assert registry_at(checkpoint, 2).active.keys() == {"q"}


def test_writers_of_different_names_all_win(checkpoint: str) -> None:
    def write(at: int) -> None:
        register(checkpoint, f"q{at}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(20)))
    assert registry_at(checkpoint, 20).active.keys() == {f"q{at}" for at in range(20)}


_ASKED = st.one_of(
    st.builds(Change, st.just("register"), st.sampled_from("pq"), st.sampled_from([COUNTS, OF_FAST, OTHER])),
    st.builds(Change, st.just("alter"), st.sampled_from("pq"), st.sampled_from([COUNTS, OF_FAST, "SELECT"])),
    st.builds(Change, st.sampled_from(["activate", "deactivate", "drop"]), st.sampled_from("pq")),
    st.builds(Change, st.just("view"), st.just("fast"), st.sampled_from([FAST, OTHER])),
    st.builds(Change, st.just("drop_view"), st.just("fast")),
    st.builds(Change, st.just("fail"), st.sampled_from("pq"), id=st.integers(1, 9), reason=st.just("broken")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(_ASKED, max_size=20))
def test_what_is_accepted_always_binds(asked: list[Change], tmp_path_factory: pytest.TempPathFactory) -> None:
    checkpoint = begun(tmp_path_factory.mktemp("registry"))
    for change in asked:
        before = Journal(checkpoint).version()
        try:
            registry = record(checkpoint, change)
        except UpstreamError:
            assert Journal(checkpoint).version() == before
            continue
        assert registry.version - before in (0, 1)
        for each in registry.queries.values():
            assert each.active or each.reason in (None, "broken")
            assert not each.active or each.query.text == each.text
            assert each.text != OF_FAST or "fast" in registry.catalog.views
