import pickle
from unittest.mock import patch

import pytest
from kit.continuous import FORMS, relation
from kit.hosting import Versions

from upstream.conf.errors import QueryRefusedError
from upstream.hosting import host_plan
from upstream.hosting.host_plan import HostPlan, HostPlans, named, rehearse

TRADES = "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym"
SUMS = "SELECT sym, SUM(n) AS s FROM trade [RANGE 5 MINUTES] GROUP BY sym"
NEWEST = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
JOIN = "SELECT a.sym, b.bid FROM trade [NOW] AS a JOIN quote [PARTITION BY sym ROWS 1] AS b ON a.sym = b.sym"
VERSIONS = Versions(
    {1: {"t": (1, TRADES), "s": (2, SUMS), "n": (3, NEWEST), "j": (4, JOIN)}, 2: {"t": (1, TRADES), "x": (9, JOIN)}}
)


def test_queries_over_the_same_streams_share_rows_and_an_evaluation():
    plan = HostPlan.of(VERSIONS(1), range(4))
    trades, sums, newest, join = (plan.queries[number] for number in (1, 2, 3, 4))
    assert trades.domain == sums.domain
    assert (trades.domain.streams, trades.domain.clock) == (("trade",), "event")
    assert newest.domain.clock == "arrival"
    assert join.domain.streams == ("quote", "trade")
    assert [each.group for each in trades.fragments] == [each.group for each in sums.fragments]
    assert trades.fragments[0].group != join.fragments[0].group
    fragments = [each for query in plan.queries.values() for each in query.fragments]
    for each in fragments:
        assert [route.name in plan.routes[route.stream.name] for route in each.routes] == [True] * len(each.routes)
        for other in fragments:
            same = (each.domain, each.routes) == (other.domain, other.routes)
            assert (each.group == other.group) == same


def test_results_need_a_shuffle_if_several_shards_of_the_second_stage_compute_them():
    def spreads(text):
        return HostPlan.of(Versions({1: {"t": (1, TRADES), "x": (2, text)}})(1), range(4)).spreads_results

    assert not spreads(SUMS)
    assert not spreads("SELECT COUNT(*) AS n FROM LATEST(buses)")  # one shard computes it
    assert spreads(NEWEST)


def test_what_two_versions_share_is_not_planned_again():
    before = HostPlan.of(VERSIONS(1), range(4))
    with patch.object(host_plan, "placed", wraps=host_plan.placed) as calls:
        plan = HostPlan.of(VERSIONS(2), range(4), before)
    assert calls.call_count == 1
    assert plan.queries[1] is before.queries[1]
    alone = HostPlan.of(VERSIONS(2), range(4))
    assert plan.queries == alone.queries
    assert plan.routes == alone.routes
    other = HostPlan.of(VERSIONS(2), range(3), before)
    assert other.queries == HostPlan.of(VERSIONS(2), range(3)).queries


def test_a_query_that_cannot_be_placed_does_not_disturb_the_others():
    def refuse(plan):
        raise RecursionError("not this one")

    with patch.object(host_plan, "placed", refuse):
        plan = HostPlan.of(VERSIONS(1), range(4))
    assert plan.queries == {}
    assert plan.refused[3] == ("n", "not this one")
    assert HostPlan.of(VERSIONS(2), range(4), plan).refused.keys() == {1}


def test_a_batch_that_was_planned_before_a_query_was_dropped_runs_again_without_it():
    plans = HostPlans(VERSIONS, range(4), opened=2)
    assert plans(1).queries.keys() == {1}
    assert plans(2).queries.keys() == {1, 9}
    assert HostPlans(VERSIONS, range(4), opened=1)(1).queries.keys() == {1, 2, 3, 4}


def test_plans_are_remembered_by_the_process():
    plans = HostPlans(VERSIONS, range(4))
    assert plans(1) is plans(1)
    assert plans(2) is not plans(1)
    assert HostPlans(VERSIONS, range(3))(1) is not plans(1)
    for _ in range(10):
        HostPlans(Versions({1: {"t": (1, TRADES)}}), range(4))(1)
    assert pickle.loads(pickle.dumps(HostPlans(named, range(4)))).slots == (0, 1, 2, 3)


def test_names_are_the_same_in_every_process():
    assert named("a", 1) == named("a", 1) == "391d545b6971354e"
    assert named("a", 1) != named("a", 2)


def test_all_forms_can_be_planned():
    versions = Versions({1: {f"q{at}": (at, text) for at, text in enumerate(FORMS)}})
    assert HostPlan.of(versions(1), range(4)).refused == {}


def rehearsed(text: str) -> None:
    rehearse(relation(text), "q", "/nowhere/q", 2)


def test_what_can_be_hosted_passes_and_no_table_is_made(tmp_path):
    rehearse(relation(FORMS[0]), "q", str(tmp_path / "q"), 1)
    assert not list(tmp_path.iterdir())


def test_a_refusal_is_in_the_words_of_the_query():
    with pytest.raises(QueryRefusedError, match=r"lpad\(sym, 2000000000"):
        rehearsed("SELECT COUNT(*) AS n FROM trade [NOW] GROUP BY lpad(sym, 2000000000)")


@pytest.mark.parametrize("error", [AssertionError("odd"), RecursionError("odd"), OverflowError("odd")])
def test_any_error_of_planning_is_a_refusal(error):
    with (
        patch.object(host_plan, "placed", side_effect=error),
        pytest.raises(QueryRefusedError, match=f"cannot be planned: {type(error).__name__}: odd"),
    ):
        rehearsed(FORMS[0])
