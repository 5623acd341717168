"""The control tables of a query's sources, queues and sink, and of hosted queries; changes of their attributes."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.errors import CheckpointError, OptionError, UpstreamError
from ..conf.locations import absolute_location
from ..conf.units import now_us
from ..core.feedback.checkpoint_layout import queue_folder
from ..core.feedback.control import (
    ATTRIBUTES,
    AUTO,
    CONTROL,
    JOB,
    NO_LIMIT,
    NOW,
    PART,
    SAMPLE,
    SINK,
    ControlChange,
    ControlConflictError,
    ControlLog,
    ControlValue,
    QueueBudget,
    Taken,
    checked_value,
    newest_record,
    taken_in,
)
from ..core.feedback.offsets import journaled_offsets
from ..core.feedback.reports import QueueReport, RowSample, read_reports, sample_folder
from ..hosting.journal import Change, Journal
from ..hosting.registry import RegisteredQuery, RegistryTexts
from ..sink.table.table import recorded_options
from ..storage.folder import TableFolder
from .jobs import hosted_jobs
from .plan_graph import stored_steps
from .watch import UnknownNameError, Watch

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from .bench import Bench
    from .watch import WatchedTable

__all__ = ["ControlTables", "control_tables", "routes"]

_HISTORY = 200
_QUERY = "query/"
_WEIGHT, _PAUSED, _BUDGET = "weight", "paused", "budget"
_BY = 80


@dataclasses.dataclass(frozen=True)
class AttributeChange:
    """A change of an attribute as it is shown."""

    version: int
    entity: str
    attribute: str
    before: Any  # None: as the query was started
    after: Any
    at_us: int | None
    by: str
    taken: tuple[int, int] | None = None  # the first batch that has it, and when it was planned

    def to_json(self) -> dict[str, Any]:
        taken = None if self.taken is None else {"batch": self.taken[0], "at_us": self.taken[1]}
        return {**vars(self), "taken": taken}


class ControlTables:
    """The control tables of the query of a checkpoint.

    Parameters
    ----------
    checkpoint : TableFolder
    table : WatchedTable or None
        The query's table; None if there is none, or each hosted query has its own.
    """

    def __init__(self, checkpoint: TableFolder, table: WatchedTable | None = None) -> None:
        self._checkpoint = checkpoint
        self._table = table
        self._log = ControlLog(checkpoint)
        self._journal = Journal(checkpoint.location)
        self._is_host = self._journal.settings() is not None
        self._edits = self._journal.read(range(1, self._journal.version() + 1)) if self._is_host else []
        self._batch = max((int(name) for name in checkpoint.names("offsets") if name.isdigit()), default=0)
        self._offsets: Sequence[Mapping[str, Any]] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the entities with their attributes, and the last changes, the newest first.

        Raise CheckpointError if the offsets of the last batch are not of this version.
        """
        try:
            self._offsets = self._last_offsets()
            return self._shown()
        except UpstreamError:
            raise
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            raise CheckpointError(
                f"the offsets of batch {self._batch} cannot be read: {type(error).__name__} {error}",
                expected=f"the file offsets/{self._batch} of the checkpoint as this version's query wrote it",
                hint="restart the query with this version, or restore that file",
            ) from error

    def _last_offsets(self) -> Sequence[Mapping[str, Any]]:
        """Return the end offsets of the last planned batch; none before the first."""
        with contextlib.suppress(FileNotFoundError):  # no batch yet, or its file was just removed
            return [each for each in journaled_offsets(self._checkpoint, self._batch) if isinstance(each, dict)]
        return ()

    def _shown(self) -> dict[str, Any]:
        changes = [*self._control_changes(), *(self._query_changes() if self._is_host else ())]
        last = {(each.entity, each.attribute): each for each in changes}
        found = [*self._sources(), *self._operators(), *self._sink(), *self._job()]
        for entity in found:
            entity["version"] = len(self._edits) if entity["kind"] == "query" else self._log.version()
            for attribute in entity["attributes"]:
                change = last.get((entity["id"], attribute["name"]))
                attribute["changed"] = None if change is None else change.to_json()
        changes.sort(key=lambda each: each.at_us or 0, reverse=True)
        return {
            "checkpoint": self._checkpoint.location,
            "entities": found,
            "changes": [each.to_json() for each in changes[:_HISTORY]],
        }

    def entity(self, name: str) -> dict[str, Any]:
        """Return one entity; raise UnknownNameError."""
        entities: list[dict[str, Any]] = self.to_json()["entities"]
        found = [each for each in entities if each["id"] == name] or [*self._part(name)]
        if not found:
            # `source` and `queue` name the only one, or one by its number.
            kind, _, number = name.partition("/")
            alike = [each for each in entities if each["id"].startswith(f"{kind}/")]
            found = [each for at, each in enumerate(alike) if number == str(at) or (not number and len(alike) == 1)]
        if not found:
            raise UnknownNameError(
                f"the query of {self._checkpoint.location} has no {name!r}",
                expected="one of " + ", ".join(each["id"] for each in entities),
            )
        return found[0]

    def change(self, name: str, attribute: str, value: object, *, by: str, seen: int | None = None) -> dict[str, Any]:
        """Change an attribute from the next batch on, and return the entity.

        None is the value with which the query was started. Raises ControlConflictError if there is a later change than
        the version `seen`; None stands for the present version.
        """
        entity = self.entity(name)
        known = {each["name"]: each for each in entity["attributes"]}
        if attribute not in known or known[attribute]["mode"] != "live":
            live = ", ".join(name for name, each in known.items() if each["mode"] == "live")
            mode = known.get(attribute, {}).get("mode")
            hint = f"{known[attribute]['why']} Give it at a restart of the query" if mode == "restart" else ""
            raise OptionError(
                f"{attribute!r} of {entity['id']} cannot be changed while the query runs",
                expected=f"one of {live}" if live else "an entity with live attributes",
                hint=_NO_QUEUE if attribute == _BUDGET and entity["kind"] == "query" else hint,
            )
        version = entity["version"] if seen is None else seen
        if entity["id"].startswith(_QUERY):
            from ..hosting.edits import record  # it binds queries, which weighs more than all else here

            query = self._queries()[entity["id"].removeprefix(_QUERY)]
            record(self._checkpoint.location, _query_change(query, attribute, value, by[:_BY]), version)
        else:
            setting = checked_value(entity["id"], attribute, value)
            # A setting that is in force is no change, unless another change came first.
            if seen not in (None, self._log.version()) or setting != self._present(entity["id"], attribute):
                self._log.put(version, ControlChange(entity["id"], attribute, setting, now_us(), by[:_BY]))
        return ControlTables(self._checkpoint, self._table).entity(entity["id"])

    def sample(self, name: str) -> dict[str, Any]:
        """Return the last sample of an entity's rows, and the version of the last request."""
        entity = self.entity(name)["id"]
        parts = read_reports(sample_folder(self._checkpoint, entity), RowSample)
        version = max((each.version for each in parts), default=0)
        mine = sorted((each for each in parts if each.version == version), key=lambda each: each.batch)
        return {
            "entity": entity,
            "asked": self._present(entity, SAMPLE),
            "version": version,
            "batches": sorted({each.batch for each in mine}),
            "columns": mine[0].columns if mine else [],
            "rows": [row for each in mine for row in each.rows][: RowSample.share(0, 1)],
        }

    def _part(self, name: str) -> Iterable[dict[str, Any]]:
        """Yield a part of hosted queries, which only gives rows: there are too many parts for a list."""
        kind, _, key = name.partition("/")
        if kind == PART and self._is_host:
            from ..hosting.reports import part_costs, part_reports

            if key in part_costs(part_reports(self._checkpoint)):
                rows = {**_act(SAMPLE), "changed": None}
                yield {"id": name, "kind": PART, "title": "", "version": self._log.version(), "attributes": [rows]}

    def _present(self, entity: str, attribute: str) -> ControlValue:
        return self._log.settings(entity, self._log.version()).get(attribute)

    def _sources(self) -> Iterable[dict[str, Any]]:
        for offset in self._offsets:
            if "progress" not in offset:
                continue
            limits: Mapping[str, Any] | None = offset.get("limits")
            live = () if limits is None else ATTRIBUTES["source"]
            rows = [
                _act(SAMPLE)
                if each.name == SAMPLE
                else _live(each.name, limits.get(each.name, NO_LIMIT), each.unit, each.expected)
                for each in live
                if limits is not None and (each.name != "idleAfter" or "idleAfter" in limits)
            ]
            feeds = len(offset["progress"])
            yield {
                "id": f"source/{offset['id']}",
                "kind": "source",
                "title": f"{offset['connector']}, {feeds:,} input partition{'s' if feeds != 1 else ''}",
                "attributes": [*rows, _fixed("connector", offset["connector"], _POSITIONS)],
            }

    def _operators(self) -> Iterable[dict[str, Any]]:
        sources = [each for each in self._offsets if "progress" in each]
        steps = {each["folder"]: each for each in stored_steps(self._checkpoint, sources) if each["folder"]}
        for offset in self._offsets:
            if "asked" in offset:
                number = int(offset["queue"])
                place = TableFolder(queue_folder(self._checkpoint.location, number), self._checkpoint.storage)
                shards = read_reports(place, QueueReport)
                waiting = max((each.waiting for each in shards), default=0)
                yield _queue(number, offset, steps.pop(queue_folder("/", number).strip("/"), None), waiting)
        for folder, step in steps.items():
            if step["kind"] == "operator":
                name = folder.removeprefix("upstream-")
                yield {
                    "id": name,
                    "kind": "operator",
                    "title": step["text"],
                    "attributes": [
                        *(_restart(each, value) for each, value in step["changeable"].items() if value),
                        *(_fixed(each, value) for each, value in step["fixed"].items() if value),
                    ],
                }

    def _sink(self) -> Iterable[dict[str, Any]]:
        if self._table is None or self._is_host:
            return
        last = self._table.last
        target = ATTRIBUTES["sink"][0]
        rows = [
            _live("target", last.target if last is not None and last.target else NO_LIMIT, "", target.expected),
            _act("maintenance"),
            _act(SAMPLE),
        ]
        if not any("limits" in each or "asked" in each for each in self._offsets):  # nobody journals a control
            rows = [_restart(each, why=_NO_JOURNAL) for each in ("target", "maintenance")]
        place = {"path": self._table.location, **{f"storage.{name}": v for name, v in self._table.storage.items()}}
        yield {
            "id": SINK,
            "kind": SINK,
            "title": self._table.name,
            "attributes": [*rows, *(_fixed(name, value, _LAYOUT) for name, value in recorded_options(place).items())],
        }

    def _job(self) -> Iterable[dict[str, Any]]:
        """Yield the entities of a job that hosts queries: itself, then each query."""
        if not self._is_host:
            return
        settings = self._journal.settings()
        (duration,) = ATTRIBUTES["job"]
        for offset in self._offsets:
            if "served" in offset:
                value = offset.get(duration.name, NO_LIMIT)
                live = _live(duration.name, value, duration.unit, duration.expected)
                shards = [] if settings is None else [_fixed("shards", settings.shards)]
                yield {"id": "job", "kind": "job", "title": "", "attributes": [live, *shards]}
        (budget,) = (each for each in ATTRIBUTES["queue"] if each.name == _BUDGET)
        for query in self._queries().values():
            rows = query.queue and [_live(_BUDGET, query.queue.get(_BUDGET, AUTO), budget.unit, budget.expected)]
            yield {
                "id": f"{_QUERY}{query.name}",
                "kind": "query",
                "title": query.reason or "",
                "attributes": [
                    _live(_WEIGHT, query.weight, "", "a number above 0"),
                    _live(_PAUSED, not query.active, "", "true or false"),
                    *rows,
                    _fixed("buckets", query.buckets, _LAYOUT),
                ],
            }

    def _queries(self) -> Mapping[str, RegisteredQuery]:
        return RegistryTexts().after(self._edits).entries

    def _control_changes(self) -> list[AttributeChange]:
        taken = {each["id"]: each["taken"] for each in self._taken()}
        before: dict[tuple[str, str], ControlValue] = {}
        found: list[AttributeChange] = []
        for version, each in enumerate(self._log.changes(), 1):
            name = each.entity, each.attribute
            found.append(
                AttributeChange(
                    version, *name, before.get(name), each.value, each.at_us, each.by,
                    taken_in(taken.get(JOB if each.entity.startswith(f"{PART}/") else each.entity, ()), version),
                )
            )  # fmt: skip
            before[name] = each.value
        return found

    def _taken(self) -> Iterable[dict[str, Any]]:
        for offset in self._offsets:
            if CONTROL in offset:
                name = (
                    f"queue/{offset['queue']}"
                    if "asked" in offset
                    else JOB
                    if "served" in offset
                    else f"source/{offset['id']}"
                )
                yield {"id": name, "taken": offset[CONTROL]["taken"]}
        newest = newest_record(self._offsets)
        yield {"id": SINK, "taken": () if newest is None else newest["taken"]}

    def _query_changes(self) -> list[AttributeChange]:
        """Return the changes of weights and budgets, and of whether queries run, from the journal of the registry."""
        times = self._journal.times_us()
        commands: list[Taken] = [each["taken"] for each in self._offsets if "served" in each and "taken" in each]
        taken: Taken = commands[0] if commands else ()
        now: dict[tuple[str, str], Any] = {}
        found: list[AttributeChange] = []
        for number, whole in enumerate(self._edits, 1):
            for each in (*(whole.parts or ()), whole):
                for attribute, value in _values(each):
                    name = f"{_QUERY}{each.name}", attribute
                    by = whole.by or ("the job" if each.kind == "fail" else "")
                    if each.kind != "create" and now.get(name) != value:
                        found.append(
                            AttributeChange(
                                number, *name, now.get(name), value, times.get(number), by, taken_in(taken, number)
                            )
                        )
                    now[name] = value
        return found


def _values(change: Change) -> Iterable[tuple[str, Any]]:
    if change.kind in ("activate", "deactivate", "fail"):
        return ((_PAUSED, change.kind != "activate"),)
    if change.kind not in ("create", "alter"):
        return ()
    created = change.kind == "create"
    weight = 1.0 if change.weight is None and created else change.weight
    paused = change.active is False if created else None
    budget = change.queue.get(_BUDGET, AUTO) if change.queue else None
    given = (_WEIGHT, weight), (_PAUSED, paused), (_BUDGET, budget)
    return [(name, value) for name, value in given if value is not None]


def _query_change(registered: RegisteredQuery, attribute: str, value: object, by: str) -> Change:
    """Return the change that gives an attribute of a hosted query a new value."""
    query = registered.name
    text = str(value).strip().lower()
    if attribute == _BUDGET:
        if value is None:
            raise OptionError("budget=default", expected="a budget: a view has the last one that was set")
        return Change("alter", query, queue={**registered.queue, _BUDGET: QueueBudget.parse(value).text}, by=by)
    if attribute == _PAUSED:
        if text not in ("true", "false"):
            raise OptionError(f"paused={value!r}", expected="true or false")
        paused = text == "true"
        return Change(
            "deactivate" if paused else "activate", query, reason=f"paused by {by}" if paused else None, by=by
        )
    try:
        return Change("alter", query, weight=float(text), by=by)
    except ValueError:
        raise OptionError(f"weight={value!r}", expected="a number above 0") from None


_UNITS = {"stalest keys": "keys of each shard", "shards": "shards", "memory": "of a task, for rows that wait"}
_ROW_BYTES = 300
_POSITIONS = "The checkpoint's positions are the connector's."
_STATE = "The checkpoint's state is divided or ordered by it."
_MEMORY = f"A task holds the rows of one shard, about {_ROW_BYTES} bytes each. More shards lower it."
_LAYOUT = "The table's files are written by it."
_AT_START = "The query reads it when it starts."
_NO_JOURNAL = "No source or queue of the query journals it with the batch."
_NO_QUEUE = "The view has no queue: create it WITH (queue = 'in-place', budget = …)."
_NO_SAMPLE = "Only the policy shed samples."
_NO_CUT = "Only the policies linecutting and auto use it."


def _queue(number: int, offset: Mapping[str, Any], step: Mapping[str, Any] | None, waiting: int) -> dict[str, Any]:
    changeable: Mapping[str, str] = {} if step is None else step["changeable"]
    policy = changeable.get("policy")
    idle = {
        "cost": _NO_CUT if policy not in (None, "linecutting", "auto") else "",
        "sampleRate": _NO_SAMPLE if policy not in (None, "shed") else "",
    }
    values = {"budget": offset["asked"], "cost": offset["assumed"], "sampleRate": offset["sampled"]}
    return {
        "id": f"queue/{number}",
        "kind": "queue",
        "title": f"{offset['budget']:,} rows in the last batch" if offset["budget"] and offset["tick"] else "",
        "attributes": [
            *(
                _restart(each.name, values[each.name], idle[each.name])
                if idle.get(each.name)
                else _live(each.name, values[each.name], each.unit, each.expected)
                for each in ATTRIBUTES["queue"]
                if each.name in values
            ),
            _act(SAMPLE),
            *(
                _restart(name, changeable.get(name))
                for name in ("policy", "weight", "access interval", "half life", "stalest keys")
            ),
            *(_fixed(name, value) for name, value in ({} if step is None else step["fixed"]).items()),
            _fixed("memory", f"{waiting * _ROW_BYTES / 1e6:.1f} MB", _MEMORY),
        ],
    }


def _live(name: str, value: object, unit: str, expected: str) -> dict[str, Any]:
    return {"name": name, "value": value, "unit": unit, "mode": "live", "expected": expected, "why": ""}


def _act(name: str) -> dict[str, Any]:
    return {**_live(name, None, "", NOW), "act": True}


def _restart(name: str, value: object = None, why: str = _AT_START) -> dict[str, Any]:
    unit = _UNITS.get(name, "")
    return {"name": name, "value": value, "unit": unit, "mode": "restart", "expected": "", "why": why}


def _fixed(name: str, value: object, why: str = _STATE) -> dict[str, Any]:
    unit = _UNITS.get(name, "")
    return {"name": name, "value": value, "unit": unit, "mode": "fixed", "expected": "", "why": why}


def control_tables(location: str, storage: Mapping[str, str]) -> ControlTables:
    """Return the control tables of the query that writes a table, or whose checkpoint is at the location."""
    watch = Watch([location], storage)
    checkpoint = absolute_location(location)
    if checkpoint in watch.checkpoints:
        return ControlTables(TableFolder(checkpoint, storage))
    table = watch.table()
    table.refresh()
    return _tables(watch, table, None)


def _tables(watch: Watch, table: WatchedTable | None, name: str | None) -> ControlTables:
    """Return the control tables of a watched checkpoint; by default, that of the table's query, or the only one."""
    mine = None if table is None else table.checkpoint
    jobs = (each.checkpoint for each in hosted_jobs(watch).values())
    known = {*watch.checkpoints, *([] if mine is None else [mine]), *jobs}
    wanted = name or mine or (watch.checkpoints[0] if len(watch.checkpoints) == 1 else None)
    if wanted is None or wanted not in known:
        raise UnknownNameError(
            f"no checkpoint is at {name}" if name else "the checkpoint of the query is not here",
            expected="a checkpoint beside its table, or below a watched folder",
            hint="name the checkpoint as a further location",
        )
    return ControlTables(TableFolder(wanted, watch.storage), table if wanted == mine else None)


def routes(bench: Bench) -> list[Route]:
    """Return the routes of the control tables."""
    from .bench import Conflict  # `upstream set` works without the server's libraries

    def tables(request: Request) -> ControlTables:
        named = request.query_params
        table = bench.watch.shown(named.get("table")) if bench.watch.tables() else None
        return _tables(bench.watch, table, named.get("checkpoint"))

    def entities(request: Request) -> Any:
        return tables(request).to_json()

    def entity(request: Request) -> Any:
        name = request.path_params["name"]
        if request.method != "PATCH":
            return tables(request).entity(name)
        body = request.state.body
        version, attribute = body.get("version"), body.get("attribute")
        if (
            not isinstance(version, int)
            or isinstance(version, bool)
            or not isinstance(attribute, str)
            or "value" not in body
        ):
            raise OptionError(
                f"a change with {', '.join(sorted(map(str, body))) or 'nothing'}",
                expected="version, the entity's as seen; attribute; and value, or null for that of the query's start",
            )
        by = str(body.get("by") or "workbench")
        try:
            return tables(request).change(name, attribute, body["value"], by=by, seen=version)
        except ControlConflictError as error:
            raise Conflict(error.problem, expected=error.expected, hint=error.hint) from error

    def sample(request: Request) -> Any:
        return tables(request).sample(request.path_params["name"])

    return [
        bench.endpoint("/api/v1/samples/{name:path}", sample, apart=True),
        bench.endpoint("/api/v1/entities", entities, apart=True),
        bench.endpoint("/api/v1/entities/{name:path}", entity, methods=["GET", "PATCH"], apart=True),
    ]
