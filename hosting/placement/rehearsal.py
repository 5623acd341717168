"""Rehearse a job's work on a query when it is registered, so that an impossible one is refused then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...conf.deep_stack import on_deep_stack
from ...conf.errors import QueryRefusedError, UpstreamError
from ...operators.relations.evaluation import Evaluation
from ...operators.relations.operator import FAILURES, attributed, computed
from ...operators.relations.plan.common_parts import in_words, shareable
from ...operators.relations.plan.nodes import Stream, walk
from ...operators.relations.plan.properties import clock_of
from ...operators.state.store import DictStore
from ...sink.results.result_table import ResultTable, layout_of
from .placement import placed
from .result_schema import Result, result_of

if TYPE_CHECKING:
    from ...operators.relations.plan.nodes import Changes, Node, Relation
    from .placement import Placement


def rehearse(plan: Relation | Changes, name: str, location: str, buckets: int) -> None:
    """Plan a query, compile its expressions and lay out its table as the job will, or raise QueryRefusedError."""
    on_deep_stack(lambda: _rehearse(plan, name, location, buckets))


def _rehearse(plan: Relation | Changes, name: str, location: str, buckets: int) -> None:
    shared: Node = plan
    try:
        result = result_of(plan)
        shared = shareable(result.plan)  # type: ignore[type-var]
        _compile(shared, placed(shared), result)
        keep = "all" if result.kind == "feed" else "latest"
        layout_of(ResultTable(0, name, location, result.schema, result.key, keep, buckets))
    except UpstreamError as error:
        problem = in_words(error.problem, shared)
        raise QueryRefusedError(problem, expected=error.expected, hint=error.hint) from error
    except FAILURES as error:
        raise QueryRefusedError(
            f"the query cannot be planned: {type(attributed(error)).__name__}: {error}",
            expected="a query that can be evaluated as it is written",
            hint="report it, with the text",
        ) from error


def _compile(plan: Node, placement: Placement, result: Result) -> None:
    clock, collapse = clock_of(plan), result.kind == "latest"
    streams = {each.name: each.schema for each in walk(plan) if isinstance(each, Stream)}
    for each in placement.fragments:
        Evaluation(DictStore(), clock=clock).add("query", each.plan, collapse=collapse)
        for route in each.routes:
            for one in route.by:
                computed(one, streams[route.stream])
        for one in each.onward or ():
            computed(one, each.plan.schema)
    if placement.second is not None:
        given = [each.plan for each in placement.fragments]
        Evaluation(DictStore(), clock=clock).add("query", placement.second, given, collapse=collapse)
