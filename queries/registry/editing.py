"""Changes of the registry, each checked against the version before it and then journaled."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from ...conf.errors import OptionError, QueryRefusedError, UpstreamError
from ..expressions.kinds import UTC
from ..language import Catalog, Query, bind
from ..placing.rehearsal import rehearse
from ..relations.nodes import Stream, walk
from .changes import Change
from .journal import Journal
from .names import check_name, found, known_name, whole_view
from .places import check_change
from .registry import Registered, Registry, registry_at
from .stored import relation_of

__all__ = ["checked", "record"]

_MOST_BUCKETS = 1024

_Named = Callable[[Query | None], Collection[str]]
"""Returns the views, or the stored relations, that a query names."""


def record(checkpoint: str, change: Change) -> Registry:
    """Check a change, write it to the journal, and return the registry with it.

    A change that already holds, such as the activation of an active query, has no effect, so a call can be repeated
    after a crash. If another process writes a change meanwhile, this one is checked again on top of it.
    """
    journal = Journal(checkpoint)
    while True:
        registry = registry_at(checkpoint, journal.version())
        wanted = checked(change, registry)
        if wanted is None:
            return registry
        check_change(wanted, registry, checkpoint)
        if journal.put(registry.version + 1, wanted):
            return registry_at(checkpoint, registry.version + 1)


def checked(change: Change, registry: Registry) -> Change | None:
    """Return the change to journal, with names spelled as registered; None if it has no effect."""
    if change.kind == "register":
        return _register(change, registry)
    if change.kind == "view":
        return _view(change, registry)
    if change.kind == "drop_view":
        return _drop_view(change, registry)
    if change.kind == "relation":
        return _relation(change, registry)
    if change.kind == "drop_relation":
        return _drop_relation(change, registry)
    if change.kind == "fail" and change.name not in registry.queries:
        return None  # dropped meanwhile
    name = known_name(change.name, registry.queries, "query")
    change, query = replace(change, name=name), registry.queries[name]
    if change.kind == "alter":
        return _alter(change, query, registry)
    if change.kind == "activate":
        _check_text(query.text, query.name, query.buckets, registry, query.time_zone)
        return None if query.active else change
    if change.kind == "deactivate":
        return change if query.active else None
    if change.kind == "fail":
        return change if query.active and query.id == change.id else None
    return change


def _register(change: Change, registry: Registry) -> Change | None:
    name = check_name(change.name, "a query")
    spelled = found(name, registry.queries)
    if spelled is not None and registry.queries[spelled].text == change.text:
        return None  # a restarted program registers its queries again
    if spelled is not None:
        raise OptionError(
            f"there is a query '{spelled}' already, with another text",
            expected="a new name, or the same text",
            hint=f"alter '{spelled}', drop it first, or choose another name",
        )
    _check_free(name, "query", registry)
    _check_values(change)
    _check_text(_text(change), name, int(change.buckets or 1), registry, change.time_zone)
    return _as_numbers(change)


def _alter(change: Change, query: Registered, registry: Registry) -> Change | None:
    if change.text is None and change.weight is None:
        raise OptionError("nothing to alter is given", expected="a query's text, a weight, or both")
    _check_values(change)
    if change.text is not None:
        _check_text(_text(change), query.name, query.buckets, registry, change.time_zone or query.time_zone)
    text = None if change.text == query.text else change.text
    weight = None if change.weight == query.weight else change.weight
    if text is None and weight is None:
        return None
    zone = None if text is None else change.time_zone
    return _as_numbers(replace(change, text=text, weight=weight, time_zone=zone))


def _check_text(text: str, name: str, buckets: int, registry: Registry, time_zone: str | None) -> None:
    """Refuse a query that the job could not host."""
    rehearse(
        bind(text, registry.catalog.in_zone(time_zone or UTC)).plan, name, registry.settings.table_of(name), buckets
    )


def _view(change: Change, registry: Registry) -> Change | None:
    name = check_name(change.name, "a view")
    view = registry.catalog.view(name)
    if view is not None and view[1] == change.text:
        return None
    if view is not None:
        raise OptionError(
            f"there is a view '{view[0]}' already, with another text",
            expected="a new name, or the same text",
            hint=f"drop '{view[0]}' first, or choose another name",
        )
    if (query := found(name, registry.queries)) is not None:
        raise OptionError(f"there is a query '{query}' already", hint="choose another name for the view")
    text = _text(change)
    bind(whole_view(name), registry.catalog.with_view(name, text))
    return change


def _relation(change: Change, registry: Registry) -> Change | None:
    name = check_name(change.name, "a relation")
    relation, catalog = relation_of(change), registry.catalog
    known = catalog.relations.get(name)
    if known == relation:
        return None
    if known is None:
        _check_free(name, "relation", registry)
        catalog.with_relation(relation)
        return change
    if known.table is None or relation.table is None or known.table.location != relation.table.location:
        raise OptionError(
            f"there is a relation '{name}' already, of another table: {known.table or 'of the streams file'}",
            expected="a new name, or the same table",
            hint=f"drop '{name}' first, or choose another name",
        )
    wanted = catalog.with_relation(relation)
    users = [each.name for each in registry.active.values() if name in _relations(_bound(each, registry))]
    queries = [registry.queries[each] for each in users]
    texts = [(f"query '{each.name}'", each.text, each.time_zone) for each in queries]
    texts += [(f"view '{each}'", whole_view(each), UTC) for each in _views_over(name, _relations, catalog)]
    for what, text, time_zone in texts:
        try:
            plan = bind(text, wanted.in_zone(time_zone)).plan
            rehearse(plan, name, registry.settings.table_of(name), 1)
        except UpstreamError as error:
            raise OptionError(
                f"the {what} does not fit the relation '{name}' as {relation.table} has it: {error}",
                hint=f"alter or drop the {what} first",
            ) from error
    return replace(change, restarts=tuple(users))


def _drop_relation(change: Change, registry: Registry) -> Change:
    return _dropped(change, "relation", registry.catalog.relations, _relations, registry)


def _drop_view(change: Change, registry: Registry) -> Change:
    return _dropped(change, "view", registry.catalog.views, _views, registry)


def _dropped(change: Change, what: str, known: Collection[str], named_in: _Named, registry: Registry) -> Change:
    """Return the change that drops a relation or view; raise OptionError if a query or view names it."""
    name = known_name(change.name, known, what)
    every = registry.queries.values()
    users = [f"the query '{each.name}'" for each in every if name in named_in(_bound(each, registry))]
    users += [f"the view '{each}'" for each in _views_over(name, named_in, registry.catalog)]
    if users:
        raise OptionError(
            f"the {what} '{name}' is in use by {_listed(users)}",
            expected=f"a {what} that nothing names",
            hint="drop or alter what uses it first",
        )
    return replace(change, name=name)


def _views_over(name: str, named_in: _Named, catalog: Catalog) -> list[str]:
    return [each for each in catalog.views if each != name and name in named_in(_bound_text(whole_view(each), catalog))]


def _bound(query: Registered, registry: Registry) -> Query | None:
    return query.bound if query.bound is not None else _bound_text(query.text, registry.catalog)


def _bound_text(text: str, catalog: Catalog) -> Query | None:
    """Return a bound text; None if it cannot be bound, so it names nothing that exists."""
    try:
        return bind(text, catalog)
    except UpstreamError:
        return None


def _views(query: Query | None) -> Collection[str]:
    return () if query is None else query.views


def _relations(query: Query | None) -> Collection[str]:
    every = () if query is None else walk(query.plan)
    return {each.name for each in every if isinstance(each, Stream) and each.static}


def _listed(users: Iterable[str]) -> str:
    known = list(users)
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return ", ".join(known[:5]) + more


def _check_free(name: str, what: str, registry: Registry) -> None:
    catalog = registry.catalog
    taken = found(name, [*registry.queries, *catalog.names()])
    if taken is not None:
        kinds = {"query": registry.queries, "view": catalog.views, "relation": catalog.relations}
        kind = next((kind for kind, names in kinds.items() if taken in names), "stream")
        raise OptionError(f"there is a {kind} '{taken}' already", hint=f"choose another name for the {what}")


def _text(change: Change) -> str:
    if not isinstance(change.text, str) or not change.text.strip():
        raise QueryRefusedError(f"the text of '{change.name}' is {change.text!r}", expected="a query")
    return change.text


def _check_values(change: Change) -> None:
    weight, buckets = change.weight, change.buckets
    if weight is not None and not (_number(weight) and math.isfinite(weight) and weight > 0):
        raise OptionError(
            f"weight={weight!r}", expected="a number above 0", hint="deactivate a query that is not to run"
        )
    if buckets is not None and not (_number(buckets) and int(buckets) == buckets and 1 <= buckets <= _MOST_BUCKETS):
        raise OptionError(f"buckets={buckets!r}", expected=f"a whole number from 1 to {_MOST_BUCKETS}")


def _as_numbers(change: Change) -> Change:
    weight = None if change.weight is None else float(change.weight)
    return replace(change, weight=weight, buckets=None if change.buckets is None else int(change.buckets))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
