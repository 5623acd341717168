"""The queue of a materialized view: its options, and its place in the view's plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import get_args

from ..conf.errors import OptionError, QueryRefusedError
from ..conf.options import duration_argument
from ..core.feedback.control import AUTO, QueueBudget
from ..expressions.nodes import Call, Expression, Field, all_of, conjuncts, substituted
from ..expressions.nodes import walk as walk_parts
from ..expressions.python_functions import is_python
from ..language import Query
from ..operators.queue.queue import Policy
from ..operators.relations.plan.nodes import (
    Changes,
    Distinct,
    GroupAggregates,
    Join,
    Latest,
    Node,
    Project,
    QueueProject,
    Relation,
    SetOperation,
    Stream,
    Top,
    Where,
    WindowFunctions,
    WindowOver,
)

_POLICIES = [each for each in get_args(Policy) if each not in ("append", "shed")]
_WORDS: Mapping[type[Node], str] = {
    Changes: "a stream of changes",
    Distinct: "DISTINCT",
    GroupAggregates: "an aggregate",
    Join: "a join",
    SetOperation: "a set operation",
    Top: "the first rows of an order",
    WindowFunctions: "a window function",
}


@dataclass(frozen=True)
class ViewQueue:
    """The queue of a view."""

    policy: Policy
    budget: QueueBudget
    interval_us: int

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ViewQueue | None:
        """Return the queue with the options ``queue``, ``budget`` and ``access_interval``; None if there are none."""
        if not options:
            return None
        policy = next((each for each in _POLICIES if each == options.get("queue")), None)
        if policy is None:
            raise OptionError(
                f"queue = {options['queue']!r}" if "queue" in options else f"{next(iter(options))} without a queue",
                expected="queue = " + ", ".join(f"'{each}'" for each in _POLICIES),
            )
        interval = options.get("access_interval")
        return cls(
            policy,
            QueueBudget.parse(options.get("budget", AUTO)),
            0 if interval is None else duration_argument("access_interval", interval),
        )

    @classmethod
    def put(cls, query: Query, name: str, options: Mapping[str, str]) -> Query:
        """Return a view's query with its queue: before what costs time, and behind what drops rows at no cost.

        Raise QueryRefusedError unless the query is a list of columns over the newest rows of one stream.
        """
        queue = cls.of(options)
        if queue is None:
            return query
        conditions: list[Expression] = []
        columns = {each.name: Field(each.name, each.type) for each in query.schema}
        node = query.plan
        while isinstance(node, Project | Where):
            if isinstance(node, Where):
                conditions = [*conjuncts(node.condition), *conditions]
            else:
                below = dict(node.columns)
                columns = {column: substituted(each, below) for column, each in columns.items()}
                conditions = [substituted(each, below) for each in conditions]
            node = node.source
        origin = node.origin if isinstance(node, WindowOver) and isinstance(node.window, Latest) else None
        if not isinstance(node, WindowOver) or not isinstance(origin, Stream) or node.stream is not origin:
            raise QueryRefusedError(
                f"the queue of '{name}' is over {_WORDS.get(type(node), 'other rows than the newest')}",
                expected="SELECT columns FROM LATEST(stream) WHERE …: a queue holds the newest row of each key",
                hint="give this part a view of its own with the queue, and read its table by another source",
            )
        absent = [key for key in origin.key if not any(_is(each, key) for each in columns.values())]
        if absent:
            raise QueryRefusedError(
                f"'{name}' has a queue, and its columns lack the key {', '.join(absent)}",
                expected=f"{', '.join(origin.key)} among the columns of SELECT",
            )
        # An earlier condition may guard a later one.
        costly = next((at for at, each in enumerate(conditions) if _calls_python(each)), len(conditions))
        below, above = all_of(conditions[:costly]), all_of(conditions[costly:])
        source: Relation = node if below is None else Where(node, below)
        plan = QueueProject(source, (*columns.items(),), origin.key, queue.policy, name, queue.interval_us, above)
        return replace(query, plan=plan)


def _is(expression: Expression, column: str) -> bool:
    return isinstance(expression, Field) and expression.name == column


def _calls_python(expression: Expression) -> bool:
    return any(isinstance(each, Call) and is_python(each) for each in walk_parts(expression))
