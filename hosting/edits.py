"""The beginning of a registry and its changes, each checked against the version before it, then journaled."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from ..conf.errors import CheckpointError, OptionError, QueryRefusedError, UpstreamError
from ..conf.locations import Place, check_apart, real_location, relation_of_places
from ..conf.process_identity import cores
from ..core.feedback.control import ControlConflictError
from ..expressions.kinds import UTC
from ..language import Catalog, Query, bind
from ..language.catalog import function_of
from ..language.statements import Kind
from ..operators.relations.plan.nodes import Stream, walk
from ..sink.commit.last_commit import read_query_id
from ..storage.folder import folder_at
from .host_plan import rehearse
from .journal import (
    Change,
    Journal,
    Settings,
    change_to,
    check_name,
    found,
    known_name,
    pinned,
    relation_of,
    whole_view,
)
from .registry import RegisteredQuery, Registry, bind_registered, registered, registry_at, registry_now


def check_folder(to: str, others: Iterable[Place]) -> None:
    """Raise OptionError if a folder of tables is at or inside another place, as all its tables would be."""
    for other, there in others:
        if relation_of_places(to, there) in ("at", "inside"):
            check_apart([("to", to)], [(other, there)])


def check_stream(name: str, paths: Iterable[str], registry: Registry) -> None:
    """Raise OptionError if a stream's sources read where tables of queries are or may be."""
    inputs = _inputs(name, paths)
    check_folder(registry.settings.to, inputs)
    for each in registry.queries:
        check_apart([_table(each, registry)], inputs)


def check_tables(registry: Registry, checkpoint: str, inputs: Iterable[Place], aside: Iterable[Place]) -> None:
    """Raise OptionError if a table of a job overlaps the checkpoint, the streams' sources, or a dead-letter table."""
    known = [("the checkpoint", checkpoint), *inputs, *aside]
    check_folder(registry.settings.to, known)
    for each in registry.queries:
        check_apart([_table(each, registry)], known)


def check_change(change: Change, registry: Registry, checkpoint: str) -> None:
    """Raise OptionError if a change puts a table where other files are, or deletes a relation's table."""
    if change.kind == "create":
        known = [("the checkpoint", checkpoint), *_relations(registry)]
        for name, paths in registry.settings.inputs:
            known += _inputs(name, paths)
        check_apart([_table(change.name, registry)], known)
    elif change.kind == "table" and (table := relation_of(change).table) is not None:
        # A relation may be a query's table, but a table cannot be inside another one.
        for each in registry.queries:
            name, place = _table(each, registry)
            if relation_of_places(place, table.location) != "at":
                check_apart([(name, place)], [(f"the relation '{change.name}'", table.location)])
    elif change.kind == "drop" and change.delete_table:
        _, place = _table(change.name, registry)
        users = [name for name, there in _relations(registry) if relation_of_places(place, there)]
        if users:
            raise OptionError(
                f"the table of the query '{change.name}' cannot be deleted, because {users[0]} reads it",
                expected="a table that no relation reads",
                hint="drop the relation first, or drop the query without its table",
            )


def _table(query: str, registry: Registry) -> Place:
    return f"the table of the query '{query}'", registry.settings.table_of(query)


def _inputs(name: str, paths: Iterable[str]) -> list[Place]:
    return [(f"the source of the stream '{name}'", path) for path in paths]


def _relations(registry: Registry) -> list[Place]:
    known = registry.catalog.relations.items()
    return [(f"the relation '{name}'", each.table.location) for name, each in known if each.table is not None]


_MOST_BUCKETS = 1024

_Named = Callable[[Query | None], Collection[str]]
"""Returns the views, the stored relations, or the functions that a query names."""


def record(checkpoint: str, change: Change, seen: int | None = None) -> Registry:
    """Check a change, write it to the journal, and return the registry with it.

    A change that already holds, such as the activation of an active query, has no effect, so a call can be repeated
    after a crash. If another process writes a change meanwhile, this one is checked again on top of it. With `seen`,
    the version that the caller saw, it raises ControlConflictError instead.
    """
    journal = Journal(checkpoint)
    while True:
        registry = registry_at(checkpoint, journal.version())
        if seen is not None and seen != registry.version:
            raise ControlConflictError.of("the queries", seen, registry.version)
        wanted = checked(change, registry)
        if wanted is None:
            return registry
        check_change(wanted, registry, checkpoint)
        if journal.put(registry.version + 1, wanted):
            return registry_at(checkpoint, registry.version + 1)


def checked(change: Change, registry: Registry) -> Change | None:
    """Return the change to journal, with names spelled as registered; None if it has no effect."""
    if change.kind == "create":
        return _register(change, registry)
    if change.kind == "view":
        return _view(change, registry)
    if change.kind == "drop_view":
        return _drop_view(change, registry)
    if change.kind == "function":
        return _function(change, registry)
    if change.kind == "drop_function":
        return _dropped(change, "function", registry.catalog.functions, _functions, registry)
    if change.kind == "table":
        return _relation(change, registry)
    if change.kind == "drop_table":
        return _drop_table(change, registry)
    if change.kind == "statement":
        return None if registry.statements.get(change.name) == change.text else change
    if change.kind == "fail" and change.name not in registry.queries:
        return None  # dropped meanwhile
    name = known_name(change.name, registry.queries, "query")
    change, query = replace(change, name=name), registry.queries[name]
    if change.kind == "alter":
        return _alter(change, query, registry)
    if change.kind == "activate":
        _check_text(query.text, query, registry)
        return None if query.active else change
    if change.kind == "deactivate":
        return _pause(change, query)
    if change.kind == "fail":
        return change if query.runs and query.id == change.id else None
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
    _check_text(_text(change), registered(replace(change, name=name), 0), registry)
    return _as_numbers(change)


def _alter(change: Change, query: RegisteredQuery, registry: Registry) -> Change | None:
    if change.text is None and change.weight is None and change.queue is None:
        raise OptionError("nothing to alter is given", expected="a query's text, a weight, or a budget")
    _check_values(change)
    queue = query.queue if change.queue is None else change.queue
    if change.text is not None or change.queue is not None:
        text, zone = _text(replace(change, text=change.text or query.text)), change.time_zone or query.time_zone
        _check_text(text, replace(query, time_zone=zone, queue=queue), registry)
    text = None if change.text == query.text else change.text
    weight = None if change.weight == query.weight else change.weight
    if text is None and weight is None and queue == query.queue:
        return None
    zone = None if text is None else change.time_zone
    return _as_numbers(replace(change, text=text, weight=weight, time_zone=zone))


def _pause(change: Change, query: RegisteredQuery) -> Change | None:
    if change.kept_since_us is None:
        return change if query.runs else None
    if not query.runs:
        raise OptionError(
            f"the query '{query.name}' is paused, and its state is not kept",
            expected="a query that runs",
            hint=f"resume '{query.name}', then pause it again",
        )
    return change if query.active else None


def _check_text(text: str, query: RegisteredQuery, registry: Registry) -> None:
    """Refuse a text of a query that the job could not host."""
    plan = bind_registered(replace(query, text=text), registry.catalog).plan
    rehearse(plan, query.name, registry.settings.table_of(query.name), query.buckets)


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


def _function(change: Change, registry: Registry) -> Change | None:
    name, text = check_name(change.name, "a function"), _text(change)
    spelled = found(name, registry.catalog.functions)
    if spelled is not None:
        if function_of(registry.catalog.functions[spelled]) == function_of(text):
            return None
        raise OptionError(
            f"there is a function '{spelled}' already, with another declaration",
            expected="a new name, or the same declaration",
            hint=f"drop '{spelled}' first, or edit the job's file and apply it",
        )
    _check_free(name, "function", registry)
    registry.catalog.with_function(name, text)
    function_of(text).check()
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
    users = [each.name for each in registry.active.values() if name in _relations_editing(_bound(each, registry))]
    queries = [registry.queries[each] for each in users]
    texts = [(f"query '{each.name}'", each.text, each.time_zone) for each in queries]
    texts += [(f"view '{each}'", whole_view(each), UTC) for each in _views_over(name, _relations_editing, catalog)]
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


def _drop_table(change: Change, registry: Registry) -> Change:
    return _dropped(change, "relation", registry.catalog.relations, _relations_editing, registry)


def _drop_view(change: Change, registry: Registry) -> Change:
    return _dropped(change, "view", registry.catalog.views, _views, registry)


def _dropped(change: Change, what: str, known: Collection[str], named_in: _Named, registry: Registry) -> Change:
    """Return the change that drops something; raise OptionError if a query or view names it."""
    name = known_name(change.name, known, what)
    every = registry.queries.values()
    users = [f"the query '{each.name}'" for each in every if name in named_in(_bound(each, registry))]
    users += [f"the view '{each}'" for each in _views_over(name, named_in, registry.catalog)]
    if users:
        raise OptionError(
            f"the {what} '{name}' is in use by {_listed(users)}",
            expected=f"a {what} without dependents",
            hint="first drop or alter its dependents",
        )
    return replace(change, name=name)


def readers_of(name: str, registry: Registry) -> list[tuple[Kind, str]]:
    """Return the queries and views that name a view, relation or function, each before what it names."""
    view = registry.catalog.view(name)
    known, named_in = (view[0], _views) if view else (name, _relations_editing)
    if (function := found(name, registry.catalog.functions)) is not None:
        known, named_in = function, _functions
    queries = [each.name for each in registry.queries.values() if known in named_in(_bound(each, registry))]
    views = _views_over(known, named_in, registry.catalog)
    return [*(("MATERIALIZED VIEW", each) for each in queries), *(("VIEW", each) for each in reversed(views))]


def _views_over(name: str, named_in: _Named, catalog: Catalog) -> list[str]:
    return [each for each in catalog.views if each != name and name in named_in(bound_text(whole_view(each), catalog))]


def _bound(query: RegisteredQuery, registry: Registry) -> Query | None:
    return query.bound if query.bound is not None else bound_text(query.text, registry.catalog)


def bound_text(text: str, catalog: Catalog) -> Query | None:
    """Return a bound text; None if it cannot be bound, so it names nothing that exists."""
    try:
        return bind(text, catalog)
    except UpstreamError:
        return None


def _views(query: Query | None) -> Collection[str]:
    return () if query is None else query.views


def _functions(query: Query | None) -> Collection[str]:
    return () if query is None else query.functions


def _relations_editing(query: Query | None) -> Collection[str]:
    every = () if query is None else walk(query.plan)
    return {each.name for each in every if isinstance(each, Stream) and each.static}


def _listed(users: Iterable[str]) -> str:
    known = list(users)
    more = f" and {len(known) - 5} more" if len(known) > 5 else ""
    return ", ".join(known[:5]) + more


def _check_free(name: str, what: str, registry: Registry) -> None:
    catalog = registry.catalog
    taken = found(name, [*registry.queries, *catalog.names(), *catalog.functions])
    if taken is not None:
        kinds: dict[str, Collection[str]] = {
            "query": registry.queries,
            "view": catalog.views,
            "relation": catalog.relations,
            "function": catalog.functions,
        }
        kind = next((kind for kind, names in kinds.items() if taken in names), "stream")
        raise OptionError(f"there is a {kind} '{taken}' already", hint=f"choose another name for the {what}")


def _text(change: Change) -> str:
    if not isinstance(change.text, str) or not change.text.strip():
        raise QueryRefusedError(f"the text of '{change.name}' is {change.text!r}", expected="a query")
    return change.text


def _check_values(change: Change) -> None:
    weight, buckets = change.weight, change.buckets
    if weight is not None and not (_number(weight) and math.isfinite(weight) and weight > 0):
        raise OptionError(f"weight={weight!r}", expected="a number above 0", hint="to stop a query, deactivate it")
    if buckets is not None and not (_number(buckets) and int(buckets) == buckets and 1 <= buckets <= _MOST_BUCKETS):
        raise OptionError(f"buckets={buckets!r}", expected=f"a whole number from 1 to {_MOST_BUCKETS}")
    if change.lateness_us is not None and change.lateness_us < 0:
        raise OptionError(f"lateness={change.lateness_us} µs", expected="a duration of 0 seconds or more")


def _as_numbers(change: Change) -> Change:
    weight = None if change.weight is None else float(change.weight)
    return replace(change, weight=weight, buckets=None if change.buckets is None else int(change.buckets))


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def declare(checkpoint: str, name: str, location: str, storage: Mapping[str, str] | None = None) -> Registry:
    """Declare a Delta table's current version as a relation for queries, and return the changed registry.

    A relation of this name over the same table stays as it is, even if the table has changed. `storage` has options of
    the object store beside those of the environment.
    """
    registry = registry_now(checkpoint)
    known = registry.catalog.relations.get(name)
    if known is not None and known.table is not None and known.table.location == location:
        return registry
    return record(checkpoint, change_to(pinned(name, location, storage)))


def refresh(checkpoint: str, name: str, storage: Mapping[str, str] | None = None) -> Registry:
    """Pin a stored relation to its table's current version, and return the changed registry.

    Raises OptionError if there is no such relation or a query that reads it does not fit.
    """
    registry = registry_now(checkpoint)
    name = known_name(name, registry.catalog.relations, "relation")
    table = registry.catalog.relations[name].table
    return registry if table is None else record(checkpoint, change_to(pinned(name, table.location, storage)))


def drop_query(
    checkpoint: str, name: str, *, delete_table: bool = False, options: tuple[tuple[str, str], ...] = ()
) -> Registry:
    """Drop a query, and have the job delete its own table if `delete_table` is set; refuse an unknown query."""
    if not delete_table:
        return record(checkpoint, Change("drop", name))
    from ..sink.results.result_tables import refuse_foreign  # it imports Spark

    registry = registry_now(checkpoint)
    spelled = known_name(name, registry.queries, "query")
    refuse_foreign(registry.settings.table_of(spelled), spelled, _host(checkpoint), options)
    return record(checkpoint, Change("drop", spelled, delete_table=True))


def _host(checkpoint: str) -> str | None:
    """Return the streaming query's id; None if it has never run."""
    folder = folder_at(checkpoint)
    try:
        return read_query_id(folder)
    except CheckpointError:
        if folder.has("metadata"):
            raise
        return None


def default_shards() -> int:
    """Return the number of parts of a new checkpoint's state: each one has its cost in each batch."""
    return max(cores(), 2)


def opened(checkpoint: str, to: str | None, shards: int | None) -> Settings:
    """Return the settings of a checkpoint; begin a new checkpoint with them.

    None for `to` or `shards` keeps the checkpoint's own. Raises OptionError if they differ from the checkpoint's, a new
    checkpoint has no `to`, or the tables would be in the checkpoint.
    """
    journal = Journal(checkpoint)
    settings = journal.settings()
    if settings is not None:
        settings.check_same(to, shards)
        return settings
    if to is None:
        raise OptionError(
            f"{journal.location} has no queries yet, and 'to' is missing",
            expected="the folder in which each query has its table",
            hint="give to=…, or correct the checkpoint",
        )
    settings = Settings(to, default_shards() if shards is None else shards)
    check_folder(to, [("the checkpoint", checkpoint)])
    journal.write_settings(settings)
    return settings


def define_stream(checkpoint: str, stream: Stream, inputs: Iterable[str] = ()) -> Settings:
    """Define a stream for queries; until the job has run, this can also redefine it.

    `inputs` are the paths that its sources read. Raises OptionError if the name is taken, the paths meet tables of
    queries, or a registered query does not fit. Raises CheckpointError if the job has run without this definition.
    """
    check_name(stream.name, "a stream")
    journal = Journal(checkpoint)
    registry = registry_now(checkpoint)
    paths = tuple(map(real_location, inputs))
    check_stream(stream.name, paths, registry)
    known = dict(registry.settings.inputs).get(stream.name) == paths or journal.started()
    if registry.settings.stream(stream.name) == stream and known:
        return registry.settings
    relations = [each for each in registry.catalog.relations if registry.settings.stream(each) is None]
    taken = found(stream.name, [*registry.queries, *registry.catalog.views, *relations, *registry.catalog.functions])
    if taken is not None:
        raise OptionError(
            f"there is a query, a view, a function or a relation '{taken}' already",
            hint="choose another name for the stream",
        )
    changed = registry.settings.with_stream(stream, paths)
    catalog = changed.catalog()
    for each in relations:
        catalog = catalog.with_stream(registry.catalog.streams[each])
    catalog = replace(catalog, functions=registry.catalog.functions)
    for name, text in registry.catalog.views.items():
        catalog = catalog.with_view(name, text)
    for each in registry.active.values():
        try:
            bind(each.text, each.scope(catalog))
        except UpstreamError as error:
            raise OptionError(
                f"the query '{each.name}' does not fit the new definition of '{stream.name}': {error}",
                hint=f"alter or drop '{each.name}' first",
            ) from error
    journal.write_settings(changed)
    return changed
