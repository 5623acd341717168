"""EXPLAIN names the registered queries that share an operator, and no others."""

import dataclasses
import itertools

import pytest
from kit.hosting import Versions

from upstream.hosting.host_plan import HostPlan
from upstream.hosting.shared_parts import explain_among
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.state.store import DictStore

HOUR = "SELECT sym, MAX(px) AS hi FROM trade [RANGE 1 HOUR] WHERE n > 0 AND px < 1000 GROUP BY sym"
MEANS = (
    "SELECT x.sym, AVG(x.px) AS mean FROM trade [RANGE 1 HOUR] AS x WHERE 1000 > x.px AND x.n > 0 "
    "GROUP BY x.sym HAVING AVG(x.px) > 5"
)
TEN = "SELECT sym, SUM(n) AS n FROM trade [RANGE 10 MINUTES SLIDE 1 MINUTE] GROUP BY sym"
LONG = "SELECT sym, AVG(px) AS mean FROM trade [RANGE 1 HOUR SLIDE 5 MINUTES] GROUP BY sym"
PER_ROUTE = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"


def registry(*texts):
    """Return a registry of queries named a, b, c and so on."""
    version = len(texts)
    return Versions({version: {chr(ord("a") + at): (at + 1, text) for at, text in enumerate(texts)}})(version)


def notes(query, *texts):
    """Return what stands behind each operator of a query about other queries."""
    lines = [each.strip().partition(" -- ") for each in explain_among(query, registry(*texts)).splitlines()[3:]]
    return {line.split()[0]: "; ".join(x for x in note.split("; ") if "shared" in x) for line, _, note in lines}


def test_the_highest_operator_that_is_shared_names_the_query():
    found = {"Aggregate": "", "Where": "shared with a", "Range": "", "Stream": ""}
    assert notes(MEANS, HOUR) == found  # of the two conditions, the one below the groups
    assert notes("b", HOUR, MEANS) == notes(MEANS, HOUR)
    assert notes("a", HOUR, MEANS)["Where"] == "shared with b"


def test_an_equal_query_shares_all():
    assert notes(TEN, LONG, TEN)["Aggregate"] == "shared with b"
    assert notes(LONG, TEN, LONG)["Aggregate"] == "shared with b; slices shared with a"
    assert explain_among("a", registry(HOUR, HOUR)).count("shared") == 1
    assert "shared" not in explain_among("a", registry(HOUR))


def test_slices_are_shared_with_whom_comes_later_if_the_width_fits():
    assert notes("b", TEN, LONG)["Aggregate"] == notes("a", TEN, LONG)["Aggregate"].replace("b", "a")
    assert notes("a", TEN, LONG)["Aggregate"] == "slices shared with b"
    assert notes(LONG, TEN)["Aggregate"] == "", "it reads a column that earlier rows lack"
    assert notes(LONG, TEN, HOUR)["Aggregate"] == "slices shared with a"
    assert "shared" not in explain_among("b", registry(LONG, TEN)), "it begins narrower ones"
    seven = TEN.replace("10 MINUTES SLIDE 1 MINUTE", "7 SECONDS SLIDE 7 SECONDS")
    assert "shared" not in explain_among(seven, registry(TEN))
    assert "shared" not in explain_among(TEN.replace("GROUP", "WHERE n > 1 GROUP"), registry(TEN))


def test_a_window_that_only_slices_stand_for_is_shared_with_nobody():
    plain = "SELECT * FROM trade [RANGE 10 MINUTES SLIDE 1 MINUTE]"
    assert "shared" not in explain_among(plain, registry(TEN))
    assert explain_among(plain, registry(plain)).count("shared with a") == 1


def test_only_what_is_evaluated_together_is_shared():
    joined = "SELECT t.sym, bid FROM trade [RANGE 1 HOUR] AS t JOIN quote [NOW] AS q ON t.sym = q.sym"
    assert "shared" not in explain_among(joined, registry(HOUR)), "they read other streams"
    by_price = "SELECT px, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY px"
    assert "shared" not in explain_among(
        by_price, registry("SELECT sym, MAX(n) AS n FROM trade [RANGE 1 HOUR] GROUP BY 1")
    )


def test_the_second_stage_shares_nothing_for_sure():
    """There are the groups; the newest rows are in the first."""
    found = notes(PER_ROUTE, PER_ROUTE)
    assert found["Latest"] == "shared with a"
    assert found["Aggregate"] == ""


def test_many_queries_are_counted():
    texts = [HOUR.replace("MAX", name) for name in ("MIN", "SUM", "COUNT", "AVG", "STDDEV")]
    assert notes(HOUR, *texts)["Where"] == "shared with a, b, c and 2 more"
    assert notes(HOUR, *texts[:3])["Where"] == "shared with a, b, c"


def test_a_query_that_does_not_run_shares_with_those_that_do():
    both = registry(HOUR, MEANS)
    rests = dataclasses.replace(both.queries["a"], active=False, bound=None)
    resting = dataclasses.replace(both, queries={**both.queries, "a": rests})
    assert "shared with b" in explain_among("a", resting)
    assert "shared" not in explain_among("b", resting)


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations([HOUR, MEANS, TEN, LONG, PER_ROUTE], 2)])
def test_an_evaluation_runs_fewer_operators_if_and_only_if_some_are_shared(one, other):
    plan = HostPlan.of(registry(one, other), range(8))

    def operators(*numbers):
        groups: dict[str, Evaluation] = {}
        for number in numbers:
            query = plan.queries[number]
            for at, each in enumerate(query.fragments):
                group = groups.setdefault(each.group, Evaluation(DictStore(), clock=query.domain.clock))
                group.add(f"{number} {at}", each.plan)
        return sum(each.operators for each in groups.values())

    apart, together = operators(1) + operators(2), operators(1, 2)
    assert ("shared" in explain_among("b", registry(one, other))) == (apart - together > 1), "beside the stream"
