"""The differences between a job's file and its registry, and their application as one change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from ..conf.column_names import quoted_text
from ..conf.errors import OptionError
from ..conf.locations import absolute_location
from ..conf.units import length_text
from ..expressions.kinds import UTC
from ..language import Query, bind
from ..language.catalog import Catalog, function_of
from ..language.statements import (
    Create,
    CreateFunction,
    CreateSource,
    CreateTable,
    Definition,
    Kind,
    Statement,
    ended,
    parse,
    quoted_name,
)
from ..operators.relations.plan.nodes import Stream
from .edits import bound_text, check_change
from .host_plan import rehearse
from .journal import Change, Journal, change_to, check_name, known_name, pinned, whole_view
from .registry import RegisteredQuery, Registry, bind_registered, registry_at

Action = Literal["create", "alter", "restart", "rewrite", "drop"]
_SIGNS: Mapping[Action, str] = {"create": "+", "alter": "~", "restart": "~", "rewrite": "~", "drop": "-"}

_MEANS_THE_SAME = "it means the same"


@dataclass(frozen=True)
class Difference:
    """What the application of a file does to one thing."""

    action: Action
    kind: Kind
    name: str
    detail: str = ""
    change: Change | None = None  # None if the whole change names it, or has its statement

    def __str__(self) -> str:
        return f"{_SIGNS[self.action]} {self.action} {self.kind.lower()} {self.name}{self.detail and ': '}{self.detail}"


def definitions(statements: Sequence[Statement]) -> list[Definition]:
    """Return a file's definitions; raise OptionError for other statements, a name twice, or an unknown function."""
    known: dict[str, Definition] = {}
    for each in statements:
        if not isinstance(each, Definition):
            raise OptionError(
                f"a job's file has a statement {type(each).__name__.upper()}",
                expected="CREATE statements only: the file defines the whole job",
                hint="run other statements at the prompt of `upstream sql`; for a file of rows, use `upstream latest`",
            )
        if each.name.lower() in known:
            raise OptionError(f"the file defines '{each.name}' twice", hint="remove one, or choose another name")
        if isinstance(each, CreateFunction):
            function_of(each.statement).check()
        known[each.name.lower()] = each
    return list(known.values())


def apply(
    checkpoint: str, wanted: Sequence[Definition], storage: Mapping[str, str], time_zone: str | None, *, change: bool
) -> list[Difference]:
    """Make a registry what a file defines, and return the differences; without `change`, refuse all but additions."""
    journal = Journal(checkpoint)
    while True:
        registry = registry_at(checkpoint, journal.version())
        there = differences(wanted, registry, storage, time_zone)
        if not there:
            return []
        if not change:
            refuse_changes(there)
        parts = [each.change for each in there if each.change is not None]
        for each in parts:
            check_change(each, registry, checkpoint)
        for each in _rewritten(wanted, registry):
            kind = "function" if isinstance(each, CreateFunction) else "statement"
            parts.append(Change(kind, each.name, each.statement))
        restarts = tuple(each.name for each in there if each.action == "restart")
        if journal.put(registry.version + 1, Change("apply", "", parts=tuple(parts), restarts=restarts)):
            return there


def refuse_changes(found: Sequence[Difference]) -> None:
    """Raise OptionError if a text alters or drops what a job has."""
    changed = [str(each) for each in found if each.action not in ("create", "rewrite")]
    if changed:
        raise OptionError(
            f"the text differs from what the checkpoint has: {'; '.join(changed)}",
            expected="what is there, and new definitions",
            hint="upstream apply FILE --to FOLDER --yes, or us.sql(…, change=True); or name another folder",
        )


def differences(
    wanted: Sequence[Definition], registry: Registry, storage: Mapping[str, str], time_zone: str | None
) -> list[Difference]:
    """Return the differences between a file and a registry.

    `time_zone` is that of new texts. Raises OptionError or QueryRefusedError if a part of the file does not fit the
    others, or cannot be had while the checkpoint lives.
    """
    relations = [_relation(each, registry, storage) for each in wanted if isinstance(each, CreateTable)]
    creates = [each for each in wanted if isinstance(each, Create)]
    functions = {each.name: each.statement for each in wanted if isinstance(each, CreateFunction)}
    views = {each.name: each.text for each in creates if each.view}
    catalog = _catalog(relations, functions, views, registry)
    plans = _plans(creates, catalog, registry, time_zone)
    found = [*_sources(wanted, registry), *_relations(relations, registry)]
    found += [*_functions(functions, registry), *_views(catalog, registry)]
    for each in creates:
        if not each.view:
            found += _query(each, plans[each.name], registry, time_zone)
    names = {each.name for each in creates if not each.view}
    for name, each in registry.queries.items():
        if name not in names:
            table = f"its table stays: {each.location}"
            found.append(Difference("drop", "MATERIALIZED VIEW", name, table, Change("drop", name)))
    known = {each.name for each in found if each.action != "drop"}
    for each in _rewritten(wanted, registry):
        if each.name not in known:
            found.append(Difference("rewrite", _kind(each), each.name, _MEANS_THE_SAME))
    # What goes comes first, as its name may be another's now.
    return sorted(found, key=lambda each: each.action != "drop")


def _rewritten(wanted: Sequence[Definition], registry: Registry) -> list[Definition]:
    """Return the definitions whose statements are not those of the registry, character by character."""
    functions = registry.catalog.functions
    return [
        each
        for each in wanted
        if (functions if isinstance(each, CreateFunction) else registry.statements).get(each.name) != each.statement
    ]


def _kind(definition: Definition) -> Kind:
    if isinstance(definition, Create):
        return "VIEW" if definition.view else "MATERIALIZED VIEW"
    if isinstance(definition, CreateSource):
        return "SOURCE"
    return "TABLE" if isinstance(definition, CreateTable) else "FUNCTION"


def _catalog(
    relations: Sequence[Stream], functions: Mapping[str, str], views: Mapping[str, str], registry: Registry
) -> Catalog:
    catalog = registry.settings.catalog()
    for name, text in functions.items():
        catalog = catalog.with_function(check_name(name, "a function"), text)
    for each in relations:
        catalog = catalog.with_relation(each)
    for name, text in views.items():
        catalog = catalog.with_view(check_name(name, "a view"), text)
    for name in views:
        bind(whole_view(name), catalog)
    return catalog


def _plans(creates: Sequence[Create], catalog: Catalog, registry: Registry, time_zone: str | None) -> dict[str, Query]:
    found: dict[str, Query] = {}
    for each in creates:
        if each.view:
            continue
        check_name(each.name, "a query")
        if each.name.lower() in (name.lower() for name in (*catalog.names(), *catalog.functions)):
            raise OptionError(f"the name '{each.name}' is taken by a stream, a table, a view or a function")
        there = registry.queries.get(each.name)
        query = _query_of(each, catalog, time_zone or UTC if there is None else there.time_zone)
        if there is not None and each.text != there.text and not _same(query, there):
            query = _query_of(each, catalog, time_zone or UTC)
        found[each.name] = query
        rehearse(found[each.name].plan, each.name, registry.settings.table_of(each.name), each.buckets)
    return found


def _query_of(view: Create, catalog: Catalog, zone: str) -> Query:
    query = RegisteredQuery(0, view.name, view.text, time_zone=zone, lateness_us=view.lateness_us, queue=view.queue)
    return bind_registered(query, catalog)


def _same(query: Query, there: RegisteredQuery) -> bool:
    return there.bound is not None and there.bound.plan == query.plan


def _sources(wanted: Sequence[Definition], registry: Registry) -> Iterator[Difference]:
    for each in wanted:
        if isinstance(each, CreateSource):
            stream = registry.settings.stream(each.name)
            if stream is None:
                raise OptionError(
                    f"the job has no source '{each.name}'",
                    expected="one of " + (", ".join(stream.name for stream in registry.settings.streams) or "none yet"),
                    hint="sources are those of the first `upstream run`: for others, begin in another folder",
                )
            there = registry.statements.get(each.name)
            if there is None:
                yield Difference("create", "SOURCE", each.name)
            elif parse(there) != each:
                _check_fixed(each, stream)
                yield Difference("alter", "SOURCE", each.name, "the job reads it so from its next start on")


def _check_fixed(source: CreateSource, stream: Stream) -> None:
    """Refuse a statement that the next start would refuse, as the job has run with another one."""
    given = {name.lower(): value for name, value in source.options.items()}
    keeps = {"updates": str(stream.updates).lower(), "key": ", ".join(stream.key), "event_time": stream.event_time}
    for name, kept in keeps.items():
        value = given.get(name, kept)
        if isinstance(value, str) and _words(value) != _words(kept):
            raise _fixed(source, f"{name} = '{value}'", f"{name} = '{kept}'")
    newest = given.get("queue") not in (None, "append") or str(given.get("coalesce")).lower() == "true"
    if newest != stream.newest:
        names = "neither queue nor coalesce", "queue, or coalesce = true"
        raise _fixed(source, names[newest], names[stream.newest])


def _words(names: str) -> list[str]:
    return [each.strip().lower() for each in names.split(",")]


def _fixed(source: CreateSource, written: str, kept: str) -> OptionError:
    return OptionError(
        f"the source '{source.name}' has {written}, and the job has run otherwise",
        expected=f"the same for the life of a checkpoint: {kept}",
        hint="begin in another folder, or declare the source once more under another name there",
    )


def _relation(wanted: CreateTable, registry: Registry, storage: Mapping[str, str]) -> Stream:
    """Return a table as it is in the registry, or as it is now if it is new."""
    location = absolute_location(wanted.path)
    there = registry.catalog.relations.get(wanted.name)
    if there is None:
        return pinned(check_name(wanted.name, "a table"), location, storage)
    if there.table is None or there.table.location != location:
        raise OptionError(
            f"the table '{wanted.name}' is at {there.table or 'another place'}, and the file has {location}",
            expected="the same place",
            hint=f"DROP TABLE {wanted.name} CASCADE first, or choose another name",
        )
    return there


def _relations(relations: Sequence[Stream], registry: Registry) -> Iterator[Difference]:
    known = {name: each for name, each in registry.catalog.relations.items() if each.table is not None}
    for each in relations:
        if each.name not in known:
            yield Difference("create", "TABLE", each.name, str(each.table), change_to(each))
    names = {each.name for each in relations}
    for name in filter(lambda each: each not in names, known):
        yield Difference("drop", "TABLE", name, "the files stay", Change("drop_table", name))


def _functions(functions: Mapping[str, str], registry: Registry) -> Iterator[Difference]:
    known = registry.catalog.functions
    for name, text in functions.items():
        if name not in known or function_of(known[name]) != function_of(text):
            action: Action = "alter" if name in known else "create"
            yield Difference(action, "FUNCTION", name, function_of(text).place)
    for name in filter(lambda each: each not in functions, known):
        yield Difference("drop", "FUNCTION", name, "", Change("drop_function", name))


def _views(catalog: Catalog, registry: Registry) -> Iterator[Difference]:
    known = registry.catalog.views
    for name, text in catalog.views.items():
        if known.get(name) != text:
            before = bound_text(whole_view(name), registry.catalog) if name in known else None
            same = before is not None and before.plan == bind(whole_view(name), catalog).plan
            action: Action = "rewrite" if same else "alter" if name in known else "create"
            yield Difference(action, "VIEW", name, _MEANS_THE_SAME * same, Change("view", name, text))
    for name in filter(lambda each: each not in catalog.views, known):
        yield Difference("drop", "VIEW", name, "", Change("drop_view", name))


def _query(wanted: Create, query: Query, registry: Registry, time_zone: str | None) -> Iterator[Difference]:
    name, there = wanted.name, registry.queries.get(wanted.name)
    kind: Kind = "MATERIALIZED VIEW"
    if there is None:
        change = Change(
            "create", name, wanted.text, weight=wanted.weight, active=True, buckets=wanted.buckets,
            time_zone=time_zone, lateness_us=wanted.lateness_us or None, queue=dict(wanted.queue) or None,
        )  # fmt: skip
        yield Difference("create", kind, name, f"its table: {registry.settings.table_of(name)}", change)
        return
    for what, kept, given in (
        ("buckets", there.buckets, wanted.buckets),
        ("lateness", length_text(there.lateness_us), length_text(wanted.lateness_us)),
    ):
        if kept != given:
            raise OptionError(
                f"'{name}' has {what} = {kept}, and the file has {given}",
                expected="the same for the life of a table",
                hint="give it another name, or drop it with its table first",
            )
    texts = wanted.text != there.text and not _same(query, there)
    details = ["another text; it restarts"] if texts else []
    if wanted.weight != there.weight:
        details.append(f"weight {there.weight:g} becomes {wanted.weight:g}")
    queue = None if wanted.queue == there.queue else dict(wanted.queue)
    if queue is not None:
        details.append("another queue or budget")
    if details:
        zone = time_zone if texts else None
        text = wanted.text if texts else None
        change = Change("alter", name, text, weight=wanted.weight, time_zone=zone, queue=queue)
        yield Difference("alter", kind, name, "; ".join(details), change)
    if not texts and queue is None and there.bound is not None and not _same(query, there):
        yield Difference("restart", kind, name, "what it reads is another one")


def created(name: str, registry: Registry) -> str:
    """Return the statement that makes what a registry has of this name."""
    catalog = registry.catalog
    statements = {**registry.statements, **catalog.functions}
    spelled = known_name(name, [*statements, *catalog.relations, *catalog.views, *registry.queries], "definition")
    if spelled in statements:
        return ended(statements[spelled])
    if spelled in catalog.relations:
        table = catalog.relations[spelled].table
        place = quoted_text("" if table is None else table.location)
        return f"CREATE TABLE {quoted_name(spelled)} FROM {place};"
    if spelled in catalog.views:
        return ended(f"CREATE VIEW {quoted_name(spelled)} AS\n{catalog.views[spelled]}")
    query = registry.queries[spelled]
    given = [f"weight = {query.weight:g}"] * (query.weight != 1) + [f"buckets = {query.buckets}"] * (query.buckets != 1)
    given += [f"lateness = '{length_text(query.lateness_us)}'"] * (query.lateness_us != 0)
    given += [f"{name} = {quoted_text(value)}" for name, value in query.queue.items()]
    options = f" WITH ({', '.join(given)})" if given else ""
    return ended(f"CREATE MATERIALIZED VIEW {quoted_name(spelled)}{options} AS\n{query.text}")
