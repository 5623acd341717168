from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.failures import misused
from kit.registries import COUNTS, FAST, OF_FAST, begun, register

from upstream.conf.errors import OptionError, QueryRefusedError, UpstreamError
from upstream.hosting.registry.changes import Change
from upstream.hosting.registry.edits import record
from upstream.hosting.registry.journal import Journal
from upstream.hosting.registry.registry import registry_at, registry_now

OTHER = "SELECT vehicle_id, speed FROM LATEST(buses)"
NO_WEIGHTS: tuple[Any, ...] = (0, -1, float("nan"), float("inf"), True, "2")
NO_BUCKETS: tuple[Any, ...] = (0, 1.5, 1025, True)


def refused(checkpoint: str, change: Change, part: str, error: type[Exception] = OptionError) -> None:
    """Check that a change is refused, and the journal stays as it was."""
    before = Journal(checkpoint).version()
    with pytest.raises(error, match=part):
        record(checkpoint, change)
    assert Journal(checkpoint).version() == before


def of_buses(select: str) -> str:
    return f"SELECT {select} FROM LATEST(buses)"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (of_buses("vehicle_id, speed AS _upstream"), "_upstream"),
        (of_buses("vehicle_id, speed AS __weight"), "__weight"),
        (of_buses("vehicle_id, speed AS __TIME"), "__TIME"),
        (of_buses("v FROM (SELECT vehicle_id AS v, speed AS __rows"), "__rows"),
        (of_buses("vehicle_id RLIKE '(' AS m"), r"without \)"),
        (of_buses("date_format(timestamp, 'QQQQQQQQ') AS f"), "QQQQQQQQ"),
        (of_buses("lpad(vehicle_id, 2000000000) AS f"), "1048576"),
        ("SELECT px FROM trade [ROWS 1" + "0" * 30 + "]", "2147483647"),
        (of_buses("speed") + " ORDER BY speed LIMIT 1" + "0" * 24, "2147483647"),
        ("SELECT SUM(n) OVER (ORDER BY t ROWS 1" + "0" * 20 + " PRECEDING) AS s FROM trade", "2147483647"),
        ("SELECT px FROM trade TABLESAMPLE (5 PERCENT) REPEATABLE (1" + "0" * 23 + ")", "2147483647"),
        ("SELECT px FROM trade [RANGE 1 HOUR] EMIT PERIODIC INTERVAL '1' MILLISECOND", "period"),
        ("SELECT COUNT(*) AS n FROM HOP(trade, t, INTERVAL '1' MILLISECOND, INTERVAL '1' DAY)", "windows"),
        (of_buses("(" * 600 + "speed" + ")" * 600 + " AS x"), "500 levels"),
        (of_buses("speed" + " " * 4_000_000), "4000000"),
    ],
)
def test_what_the_job_cannot_host_is_refused(checkpoint, text, part):
    refused(checkpoint, Change("register", "new", text), part, QueryRefusedError)


BAD = "SELECT vehicel_id FROM LATEST(buses)"
OF_A_QUERY: tuple[Any, ...] = ("activate", "deactivate", "drop", "alter")
OF_A_TEXT: tuple[Any, ...] = (("register", "new"), ("view", "new"), ("alter", "slow"))


@pytest.mark.parametrize(
    ("change", "part", "error"),
    [
        (Change("register", "SLOW", OTHER), "a query 'slow' already, with another text", OptionError),
        (Change("register", "Fast", COUNTS), "a view 'fast' already", OptionError),
        (Change("register", "BUSES", COUNTS), "a stream 'buses' already", OptionError),
        (Change("register", "../up", COUNTS), "cannot name a query", OptionError),
        (Change("view", "Slow", FAST), "a query 'slow' already", OptionError),
        (Change("view", "FAST", OTHER), "a view 'fast' already, with another text", OptionError),
        (Change("view", "trade", OTHER), "taken", OptionError),
        (Change("view", "a/b", OTHER), "cannot name a view", OptionError),
        *((Change(each, "slo", COUNTS), "did you mean 'slow'", OptionError) for each in OF_A_QUERY),
        (Change("drop_view", "slow"), "no view 'slow'", OptionError),
        (Change("alter", "slow"), "nothing to alter", OptionError),
        # Texts are bound before they are journaled.
        *((Change(kind, name, BAD), "'vehicle_id'", QueryRefusedError) for kind, name in OF_A_TEXT),
        (Change("register", "new", " "), "the text of 'new'", QueryRefusedError),
        (Change("view", "new", COUNTS + " EMIT CHANGES"), "EMIT", QueryRefusedError),
        (Change("view", "new", "SELECT * FROM new"), "reads itself", QueryRefusedError),
        *((Change("register", "new", COUNTS, buckets=each), "buckets=", OptionError) for each in NO_BUCKETS),
        *((Change("register", "new", COUNTS, weight=each), "weight=", OptionError) for each in NO_WEIGHTS),
        *((Change("alter", "slow", weight=each), "weight=", OptionError) for each in NO_WEIGHTS),
    ],
)
def test_what_is_refused(checkpoint, change, part, error):
    record(checkpoint, Change("view", "fast", FAST))
    register(checkpoint, "slow")
    refused(checkpoint, change, part, error)


def test_what_holds_already_is_not_journaled(checkpoint):
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


def test_an_alteration_of_both_is_one_change_of_the_query_whatever_the_case_of_its_name(checkpoint):
    register(checkpoint, "Q")
    altered = record(checkpoint, Change("alter", "q", OTHER, weight=2))
    query = altered.queries["Q"]
    assert (altered.version, query.text, query.weight, query.id) == (2, OTHER, 2.0, 2)
    assert not record(checkpoint, Change("deactivate", "q")).queries["Q"].active
    assert record(checkpoint, Change("drop", "q")).queries == {}


def test_a_view_in_use_stays(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    record(checkpoint, Change("view", "faster", "SELECT * FROM fast WHERE speed > 20"))
    refused(checkpoint, Change("drop_view", "FAST"), "in use by the view 'faster'")
    register(checkpoint, "q", "SELECT route_id, COUNT(*) AS n FROM faster GROUP BY route_id")
    record(checkpoint, Change("deactivate", "q"))
    refused(checkpoint, Change("drop_view", "faster"), "in use by the query 'q'")
    register(checkpoint, "idle", OF_FAST, active=False)  # it has no plan
    refused(checkpoint, Change("drop_view", "fast"), "in use by the query 'q', the query 'idle', the view 'faster'")
    for name in ("q", "idle"):
        record(checkpoint, Change("drop", name))
    record(checkpoint, Change("drop_view", "faster"))
    assert record(checkpoint, Change("drop_view", "Fast")).catalog.views == {}


def test_a_view_may_be_a_stream(checkpoint):
    record(checkpoint, Change("view", "moves", f"ISTREAM({FAST})"))
    counts = "SELECT route_id, COUNT(*) AS n FROM moves [RANGE 1 HOUR] GROUP BY route_id"
    assert register(checkpoint, "q", counts).queries["q"].query.views == ("moves",)


def test_two_writers_of_one_name_do_not_both_win(checkpoint):
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


def test_a_view_cannot_go_while_another_process_begins_to_use_it(checkpoint, monkeypatch):
    """The change of the other comes between the check and the file."""
    record(checkpoint, Change("view", "fast", FAST))
    put, others = Journal.put, [Change("register", "q", OF_FAST)]

    def interrupted(self: Journal, version: int, change: Change) -> bool:
        if others and change.kind == "drop_view":
            assert put(self, version, others.pop())
        return put(self, version, change)

    monkeypatch.setattr(Journal, "put", interrupted)
    misused("in use by the query 'q'", record, checkpoint, Change("drop_view", "fast"))
    assert registry_at(checkpoint, 2).active.keys() == {"q"}


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
def test_what_is_accepted_always_binds(asked, tmp_path_factory):
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


def test_a_query_keeps_the_time_zone_with_which_it_was_registered(checkpoint):
    hours = of_buses("vehicle_id, HOUR(timestamp) AS h")
    record(checkpoint, Change("register", "hours", hours, time_zone="Europe/Berlin"))
    record(checkpoint, Change("register", "hours", hours, time_zone="America/St_Johns"))  # it starts again elsewhere

    def zone_of(name: str) -> tuple[str, bool]:
        query = registry_now(checkpoint).queries[name]
        return query.time_zone, f"value='{query.time_zone}'" in str(query.query.plan)

    assert zone_of("hours") == ("Europe/Berlin", True)
    record(checkpoint, Change("alter", "hours", weight=2, time_zone="America/St_Johns"))
    assert zone_of("hours") == ("Europe/Berlin", True)
    record(checkpoint, Change("deactivate", "hours"))
    record(checkpoint, Change("activate", "hours"))
    assert zone_of("hours") == ("Europe/Berlin", True)
    record(checkpoint, Change("alter", "hours", hours + " WHERE speed > 1", time_zone="America/St_Johns"))
    assert zone_of("hours") == ("America/St_Johns", True)
    record(checkpoint, Change("alter", "hours", hours + " WHERE speed > 2"))
    assert zone_of("hours") == ("America/St_Johns", True), "whoever alters it has no session"
    record(checkpoint, Change("register", "utc", hours))
    assert zone_of("utc") == ("UTC", False)
