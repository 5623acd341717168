"""The page on sharing: its queries share what it says, and its plan is the one that EXPLAIN gives."""

from __future__ import annotations

import re

import pytest
from kit.continuous import CATALOG, EPOCH, TRADE
from kit.hosting import Versions, frame
from kit.places import ROOT

from upstream.operators.runtime.store import DictStore
from upstream.queries.deltas.evaluation import Evaluation
from upstream.queries.deltas.zsets import BEGINNING
from upstream.queries.hosting.shared_parts import explain_among
from upstream.queries.language import bind, plan_text
from upstream.queries.placing.results import result_of
from upstream.queries.relations.clocks import on_arrival
from upstream.queries.relations.nodes import Join, Node, walk
from upstream.queries.relations.sharing import shareable

PAGE = (ROOT / "docs" / "sharing.md").read_text(encoding="utf-8")
QUERIES = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
HIGHEST, MEANS, ROUTES, MANY, SHORT, LONG, SHARE, PAIRS, ABOVE, COUNTED, EVER, OFTEN = QUERIES


def hosted(sql: str) -> Node:
    """Return the plan that a job evaluates for a query."""
    return shareable(result_of(bind(sql, CATALOG).plan).plan)


def operators(*queries: str) -> int:
    plans = [hosted(sql) for sql in queries]
    evaluation = Evaluation(DictStore(), clock="arrival" if all(map(on_arrival, plans)) else "event")
    for number, plan in enumerate(plans):
        evaluation.add(str(number), plan, collapse=True)
    return evaluation.operators


@pytest.mark.parametrize(
    "pair", [(HIGHEST, MEANS), (ROUTES, MANY), (SHORT, LONG)], ids=["filtered", "newest", "slices"]
)
def test_two_queries_run_as_many_operators_as_the_page_has(pair: tuple[str, str]) -> None:
    before = PAGE[: PAGE.index(pair[0])]
    (together, run) = re.findall(r"have (\d+)\s+operators,\s+and\s+(\d+)\s+of\s+them\s+run", before)[-1]
    assert sum(map(operators, pair)) == int(together)
    assert operators(*pair) == int(run)


def joins(sql: str) -> set[Node]:
    return {each for each in walk(hosted(sql)) if isinstance(each, Join)}


def test_a_join_is_shared_if_its_sides_are_equal() -> None:
    assert joins(PAIRS) == joins(COUNTED) != set()
    assert joins(PAIRS).isdisjoint(joins(ABOVE))
    assert operators(PAIRS, ABOVE) < operators(PAIRS) + operators(ABOVE), "they share the windows"


def test_a_query_starts_with_the_groups_that_another_one_has_kept() -> None:
    evaluation = Evaluation(DictStore())
    evaluation.add("counts", hosted(EVER))
    until = int(EPOCH.timestamp() * 1_000_000) + 1
    rows = frame(TRADE, [("a", 1.0, 1, EPOCH)] * 11 + [("b", 1.0, 1, EPOCH)])
    evaluation.step({"trade": rows}, until)
    evaluation.add("often", hosted(OFTEN))
    assert evaluation.step({}, until).changes["often"].get_column("sym").to_list() == ["a"]
    assert evaluation.whole_from("often") == BEGINNING


def test_the_plan_is_the_one_that_explain_gives() -> None:
    assert f"```text\n{plan_text(bind(SHARE, CATALOG))}\n```" in PAGE
    assert "(see #1)" in PAGE
    registry = Versions({1: {"highest": (1, HIGHEST)}})(1)
    assert f"```text\n{explain_among(MEANS, registry)}\n```" in PAGE
