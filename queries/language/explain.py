"""A plan as text: its operators, what each keeps and by what that is bounded, and what the result is."""

from __future__ import annotations

from ..relations.bounds import State, length_text, state_of
from ..relations.fingerprints import Canonical, canonical
from ..relations.keys import key_of
from ..relations.nodes import (
    Aggregate,
    Changes,
    Copies,
    Distinct,
    Hop,
    Join,
    Latest,
    Node,
    Now,
    Project,
    Range,
    Rows,
    Sample,
    SetOperation,
    Stream,
    Top,
    Where,
    Windowed,
)
from ..relations.sharing import aggregate_text
from .binder import Query, bind
from .catalog import Catalog

__all__ = ["explain", "plan_text"]


def explain(query: str, catalog: Catalog) -> str:
    """Return the plan of a query as text.

    Parameters
    ----------
    query : str
        One query of the language.
    catalog : Catalog
        The streams and views that it can name.

    Returns
    -------
    str
        The result's kind, its columns, and which of them identify its rows; then the operators, each with what it
        keeps. What stands twice in the plan has a number, and is computed once.

    Raises
    ------
    QueryRefusedError
        If the query cannot be bound.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from upstream.queries.language.catalog import Catalog
    >>> from upstream.queries.language.explain import explain
    >>> from upstream.queries.relations.nodes import Stream
    >>> schema = pa.schema({"id": pa.string(), "route": pa.string(), "t": pa.timestamp("us", "UTC")})
    >>> buses = Stream("buses", schema, key=("id",), event_time="t", updates=True)
    >>> print(explain("SELECT route, COUNT(*) AS n FROM LATEST(buses) GROUP BY route", Catalog().with_stream(buses)))
    result: a relation, kept as a table (route string, n int64)
    key: route
    reads: buses
    Aggregate by route: n = count(*) -- keeps 1 partial aggregate per (route)
      Latest -- keeps one row per (id)
        Stream buses (updates by id, time t)
    """
    return plan_text(bind(query, catalog))


def plan_text(query: Query) -> str:
    """Return the plan of a bound query as text."""
    states = {each.node: each for each in state_of(query.plan)}
    columns = ", ".join(f"{each.name} {each.type}" for each in query.schema)
    key = [] if isinstance(query.plan, Changes) else [f"key: {_key(query.plan)}"]
    lines = [f"result: {_kind(query.plan)} ({columns})", *key, f"reads: {', '.join(query.reads)}"]
    known: dict[Node, Canonical] = {}
    _lines(query.plan, 0, states, lines, known, _repeated(query.plan, known), {})
    return "\n".join(lines)


def _kind(plan: Node) -> str:
    if not isinstance(plan, Changes):
        return "a relation, kept as a table"
    if plan.kind == "rstream":
        every = f"every {length_text(plan.every_us)}" if plan.every_us else "at each change"
        return f"a stream of all rows of the relation, {every}"
    return "a stream of the rows that " + ("come" if plan.kind == "istream" else "leave")


def _key(plan: Node) -> str:
    key = key_of(plan)
    if key is None:
        return "none, equal rows can be there"
    return ", ".join(key) or "none, there is one row at most"


def _repeated(plan: Node, known: dict[Node, Canonical]) -> set[str]:
    """Return the keys of the operators that stand twice in the plan, but not below another one that does."""
    seen: dict[str, int] = {}

    def count(node: Node, above: str = "") -> None:
        key = canonical(node, known).key
        if key != above:  # a projection that renames means the same as what is below it
            seen[key] = seen.get(key, 0) + 1
        if key == above or seen[key] == 1:
            for each in node.inputs:
                count(each, key)

    count(plan)
    return {key for key, times in seen.items() if times > 1}


def _lines(
    node: Node,
    depth: int,
    states: dict[Node, State],
    lines: list[str],
    known: dict[Node, Canonical],
    repeated: set[str],
    numbers: dict[str, int],
    above: str = "",
) -> None:
    key = canonical(node, known).key
    state = states.get(node)
    keeps = f" -- keeps {state.keeps}" if state is not None and state.keeps else ""
    mark = ""
    if key in repeated and key != above and not isinstance(node, Stream):
        if key in numbers:
            lines.append(f"{'  ' * depth}(see #{numbers[key]})")
            return
        numbers[key] = len(numbers) + 1
        mark = f"#{numbers[key]} "
    lines.append(f"{'  ' * depth}{mark}{_head(node)}{keeps}")
    for each in node.inputs:
        _lines(each, depth + 1, states, lines, known, repeated, numbers, key)


def _head(node: Node) -> str:
    if isinstance(node, Stream):
        if node.static:
            return f"Relation {node.name} (stored{f', {node.table}' if node.table is not None else ''})"
        key = f"{'updates' if node.updates else 'key'} by {', '.join(node.key)}, " if node.key else ""
        return f"Stream {node.name} ({key}time {node.event_time})"
    if isinstance(node, Windowed):
        return _window(node)
    if isinstance(node, Sample):
        return f"Sample {node.percent:g} %" + (f", seed {node.seed}" if node.seed else "")
    if isinstance(node, Where):
        return f"Where {node.condition}"
    if isinstance(node, Project):
        return "Project " + ", ".join(name if str(each) == name else f"{name} = {each}" for name, each in node.columns)
    if isinstance(node, Join):
        pairs = [f"{one} = {other}" for one, other in node.on]
        condition = [str(node.condition)] if node.condition is not None else []
        return f"Join {node.how}" + (f" on {' and '.join([*pairs, *condition])}" if pairs or condition else "")
    if isinstance(node, Aggregate):
        by = ", ".join(name if str(each) == name else f"{name} = {each}" for name, each in node.by)
        made = ", ".join(f"{each.name} = {aggregate_text(each)}" for each in node.aggregates)
        return "Aggregate" + (f" by {by}" if by else "") + (f": {made}" if made else "")
    if isinstance(node, Distinct):
        return "Distinct"
    if isinstance(node, Copies):
        return f"Copies, numbered by {node.name}"
    if isinstance(node, SetOperation):
        return node.kind.capitalize() + (" all" if node.all else "")
    if isinstance(node, Top):
        order = ", ".join(
            f"{each.expression}{' desc' if each.descending else ''}"
            + ("" if each.nulls_first != each.descending else f" nulls {'first' if each.nulls_first else 'last'}")
            for each in node.order
        )
        by = f" of each {', '.join(str(each) for each in node.by)}" if node.by else ""
        return f"First {node.n}{by}" + (f" by {order}" if order else "")
    return node.kind.capitalize() + (f" every {length_text(node.every_us)}" if node.every_us else "")


def _window(node: Windowed) -> str:
    window = node.window
    if isinstance(window, Range):
        slide = f" slide {length_text(window.slide_us)}" if window.slide_us else ""
        return f"Range {length_text(window.range_us)}{slide}"
    if isinstance(window, Hop):
        return f"Hop of {length_text(window.size_us)} by {length_text(window.slide_us)}"
    if isinstance(window, Rows):
        by = f" of each {', '.join(window.partition)}" if window.partition else ""
        where = f" where {window.where}" if window.where is not None else ""
        return f"Rows {window.n}{by}{where}"
    if isinstance(window, Now):
        return "Now"
    return "Latest" if isinstance(window, Latest) else "All rows"
