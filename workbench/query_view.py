"""``/api/v1/queries``: hosted queries in pages, their plans and results, and changes that go to the journal."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse, Response

from ..conf.errors import OptionError, QueryRefusedError, TableError
from ..conf.units import now_us
from ..core.feedback.ages import Staleness
from ..core.rows.event_times import python_rows
from ..expressions.reader import NOT_ALIASES
from ..expressions.types import function_names
from ..hosting.edits import drop_query, record
from ..hosting.job_file import created
from ..hosting.journal import Change, Journal
from ..hosting.registry import RegisteredQuery, registry_now
from ..hosting.reports import (
    HostReport,
    QueryCost,
    QueryReport,
    Reports,
    part_costs,
    part_reports,
    query_costs,
    whole_cost,
)
from ..hosting.shared_parts import explain_among, shared_parts
from ..hosting.table_merge import GivenForTables
from ..language import Query, plan_parts
from ..operators.relations.plan.aggregates import AGGREGATES, OTHER_ROWS, RANKS
from ..operators.relations.plan.nodes import GroupAggregates, Sample, walk
from ..sink.figures.freshness import JournaledBatch, PresentStaleness, staleness_now
from .bench import count_of
from .condition import process_loss
from .jobs import HostedJob, hosted_jobs, job_of
from .plan_graph import bound_query
from .watch import UnknownNameError

if TYPE_CHECKING:
    from starlette.requests import Request

    from ..storage.lease import Lease
    from .bench import Bench

_PAGE, _MOST = 50, 200
_ROWS = 200
_STATEMENT_WORDS = (
    "ALTER", "CREATE", "DROP", "EMIT", "FUNCTION", "ISTREAM", "DSTREAM", "RSTREAM", "LATEST", "MATERIALIZED",
    "PERIODIC", "RANGE", "REFRESH", "ROWS", "SLIDE", "SOURCE", "TABLE", "UNBOUNDED", "VIEW",
)  # fmt: skip
_APPROXIMATE = "approx"
_ORDERS = ("registered", "name", "weight", "staleness_s", "waiting_s", "cost_s", "state_bytes")


def asked_job(bench: Bench, request: Request) -> HostedJob:
    """Return the job that a request names, or the only or first one; raise UnknownNameError."""
    given = request.query_params
    job = job_of(bench.watch, given.get("job"), given.get("table"))
    job = job or next(iter(hosted_jobs(bench.watch).values()), None)
    if job is None:
        raise UnknownNameError(
            "no job that hosts queries is watched",
            expected="the checkpoint of continuous queries, or a folder that holds it",
            hint="give `upstream ui` the checkpoint of the job",
        )
    return job


_NO_COST = QueryCost(), QueryCost()


def query_row(
    query: RegisteredQuery,
    host: HostReport,
    costs: Mapping[int, tuple[QueryCost, QueryCost]],
    table: str,
    now: JobMoment,
    *,
    failed: bool,
) -> dict[str, Any]:
    """Return a query as its row of the list.

    Its costs are sums over parts. `share` divides a part by its number of readers, `whole` does not, and `alone` has
    the parts that no other query reads. Seconds are those by which a batch is longer.
    """
    report = host.queries.get(query.id)
    found = report if report is not None else QueryReport()
    seconds, size = costs.get(query.id, _NO_COST)
    known = query.id in costs or found.cost_s is not None
    since = found.oldest_us if query.active else None
    waiting_s = None if since is None else max(now.at_us - since, 0) / 1e6
    present = now.staleness(found, waiting_s, active=query.active)
    return {
        "name": query.name,
        "text": query.text,
        "weight": query.weight,
        "active": query.active,
        "reason": query.reason,
        "state": _state(query, report, failed=failed, runs=now.runs),
        "complete_from_us": found.complete_from,
        "rows": found.rows,
        "late": found.late,
        "staleness_s": found.staleness_s,
        "staleness_now_s": None if present.now is None else present.now.p99,
        "past": not present.is_recent,
        "waiting_s": waiting_s,
        "cost_s": seconds.share / host.times.tasks + (found.cost_s or 0.0) if known else None,
        "state_bytes": size.share if query.id in costs else None,
        "costs": {
            "results_s": found.cost_s,
            "evaluation_s": {name: value / host.times.tasks for name, value in vars(seconds).items()},
            "state_bytes": vars(size),
        },
        "committed_at_us": found.committed_at_us,
        "table": table,
    }


@dataclasses.dataclass(frozen=True)
class JobMoment:
    """A job at one moment."""

    at_us: int
    lease: Lease | None  # the newest, even if it has ended
    batch: JournaledBatch | None  # the last

    @classmethod
    def of(cls, job: HostedJob, now_us: int) -> JobMoment:
        return cls(now_us, job.lease(), JournaledBatch.read(job.folder))

    @property
    def runs(self) -> bool:
        """Whether a process hosts the queries."""
        return self.lease is not None and not self.lease.has_ended(self.at_us)

    @property
    def loss(self) -> str:
        """How the process was lost that hosted the queries; nothing if it released its lease, or runs."""
        lease = self.lease
        return "" if lease is None or lease.released or self.runs else process_loss(lease, self.at_us)

    def staleness(self, report: QueryReport, waiting_s: float | None, *, active: bool) -> PresentStaleness:
        """Return the staleness of a query's table now, of which the report has the 99th percentile."""
        waits = [] if waiting_s is None else [waiting_s]
        batch = self.batch
        if active and batch is not None and not batch.is_done and batch.number > report.batch:
            waits += [] if batch.is_empty and not self.runs else [batch.figures(self.at_us).p99]
        since_us = max(self.at_us - (report.committed_at_us or 0), 0)
        return staleness_now(
            _even(report.staleness_s), since_us, _even(max(waits, default=None)), is_written=active and self.runs
        )


def _even(age_s: float | None) -> Staleness | None:
    return None if age_s is None else Staleness(age_s, age_s, age_s, age_s)


def _state(query: RegisteredQuery, report: QueryReport | None, *, failed: bool, runs: bool) -> str:
    if not query.active:
        return "failed" if failed else "paused"
    if not runs:
        return "stopped"
    return "running" if report is not None and report.begun else "waits for its first batch"


def query_list(bench: Bench, request: Request) -> dict[str, Any]:
    """Return a page of a job's queries."""
    given = request.query_params
    if not given.get("job") and not hosted_jobs(bench.watch):
        return {"job": None, "jobs": [], "queries": []}
    job = asked_job(bench, request)
    offset, limit = count_of(request, "offset", 0, 10**9), count_of(request, "limit", _PAGE, _MOST)
    order, wanted = given.get("order", _ORDERS[0]), given.get("search", "").lower()
    if order not in _ORDERS:
        raise OptionError(f"order={order[:40]!r}", expected=f"one of {', '.join(_ORDERS)}")
    texts, catalog = job.registered
    host, costs, now = Reports(job.folder).host(), costs_of(job), JobMoment.of(job, bench.watch.clock_us())
    rows = [
        query_row(each, host, costs, job.settings.table_of(each.name), now, failed=each.id in texts.failed)
        for each in texts.entries.values()
        if wanted in each.name.lower() or wanted in each.text.lower()
    ]
    if order == "name":
        rows.sort(key=lambda row: row["name"].lower())
    elif order != "registered":
        rows.sort(key=lambda row: (row[order] is None, -(row[order] or 0)))
    command = job.last_command()
    return {
        "job": job.name,
        "jobs": [*hosted_jobs(bench.watch)],
        "now_us": now.at_us,
        "runs": now.runs,
        "loss": now.loss,
        "version": texts.version,
        "taken_version": None if command is None else command.version,
        "taken_batch": None if command is None else command.batch,
        "total": len(rows),
        "registered": len(texts.entries),
        "offset": offset,
        "queries": rows[offset : offset + limit],
        "streams": [_relation(each) for each in catalog.streams.values()],
        "views": dict(catalog.views),
    }


def costs_of(job: HostedJob) -> Mapping[int, tuple[QueryCost, QueryCost]]:
    """Return the costs of a job's queries, at most some seconds old: requests are many, and so can be the parts."""
    now = time.monotonic()
    made, took, found = _costs.pop(job.checkpoint, (0.0, 0.0, {}))
    if now >= made + _COSTS_TO_WORK * took:
        found = query_costs(part_reports(job.folder))
        made, took = now, time.monotonic() - now
    _costs[job.checkpoint] = made, took, found
    return found


_COSTS_TO_WORK = 50  # to read the costs takes 2 % of the process's time at most
_costs: dict[str, tuple[float, float, Mapping[int, tuple[QueryCost, QueryCost]]]] = {}


def _relation(stream: Any) -> dict[str, Any]:
    columns = {each.name: str(each.type) for each in stream.schema}
    kind = "table" if stream.static else "source"
    return {
        "name": stream.name,
        "kind": kind,
        "columns": columns,
        "key": list(stream.key),
        "event_time": stream.event_time,
    }


def query_detail(bench: Bench, request: Request) -> dict[str, Any]:
    """Return a query with its plan as text, its state by part and how many queries share each, and its accuracy."""
    job = asked_job(bench, request)
    name = job.spelled(request.path_params["name"])
    registry = registry_now(job.checkpoint)
    registered = registry.queries[name]
    host = Reports(job.folder).host()
    report, reports = host.queries.get(registered.id), part_reports(job.folder)
    failed, now = registered.id in registry.failed, JobMoment.of(job, bench.watch.clock_us())
    row = query_row(registered, host, query_costs(reports), job.settings.table_of(name), now, failed=failed)
    found: dict[str, Any] = {**row, "job": job.name, "statement": created(name, registry)}
    try:
        query = bound_query(name, registry)
    except QueryRefusedError as error:
        return {**found, "plan": None, "state_parts": [], "columns": {}, "accuracy": [str(error)]}
    parts = plan_parts(query, shared_parts(query, registry, name))
    costs = part_costs(reports)
    kept = [
        {
            "bytes": None if (cost := whole_cost(each.key, costs)) is None else cost.bytes,
            "part": each.text,
            "keeps": each.keeps,
            "shared_with": each.shared.whole,
            "share": 1 / (1 + len(each.shared.whole)),
        }
        for each in parts
        if each.keeps
    ]
    return {
        **found,
        "columns": {each.name: str(each.type) for each in query.schema},
        "plan": explain_among(name, registry),
        "state_parts": kept,
        "accuracy": accuracy_of(query, report),
    }


def accuracy_of(query: Query, report: QueryReport | None) -> list[str]:
    """Return what a query's results lack, in sentences; none if they are exact."""
    samples = [each.percent for each in walk(query.plan) if isinstance(each, Sample)]
    called = {
        each.function
        for node in walk(query.plan)
        if isinstance(node, GroupAggregates)
        for each in node.aggregates
        if each.function.startswith(_APPROXIMATE)
    }
    found = [f"It reads a sample of {percent:g} % of the rows." for percent in samples]
    found += [f"{name.upper()} is an estimate." for name in sorted(called)]
    if report is not None and report.late:
        found.append(f"{report.late:,} rows came too late for it.")
    if report is not None and report.begun and report.complete_from is None:
        found.append("It is not known from which time on its results are complete.")
    return found


def query_results(bench: Bench, request: Request) -> dict[str, Any]:
    """Return first rows of a query's table, or a ``sample`` of all, unless `after` is its latest version."""
    import polars as pl

    from ..delta_format.scan import open_table, scan_table, users_columns

    job = asked_job(bench, request)
    name = job.spelled(request.path_params["name"])
    limit = count_of(request, "limit", _ROWS, _ROWS)
    try:
        table = open_table(job.settings.table_of(name), bench.watch.storage)
    except TableError:  # no batch has made it yet
        return {"version": None, "total": 0, "columns": [], "types": [], "rows": []}
    version = table.version()
    if count_of(request, "after", 10**18, 10**18) == version:
        return {"version": version, "unchanged": True}
    frame = scan_table(table)
    names = users_columns(table, frame.collect_schema().names())
    total = int(frame.select(pl.len()).collect().item())
    if request.query_params.get("sample") == "true" and total > limit:
        frame = frame.gather_every(-(-total // max(limit, 1)))
    rows = frame.select(names).head(limit).collect()
    return {
        "version": version,
        "total": total,
        "columns": names,
        "types": [str(each) for each in rows.dtypes],
        "rows": python_rows(rows),
    }


def explained(bench: Bench, request: Request) -> dict[str, Any] | Response:
    """Return the plan of a text, or its error with the place."""
    job = asked_job(bench, request)
    registry = registry_now(job.checkpoint)
    try:
        return {"plan": explain_among(request.query_params.get("text", ""), registry)}
    except QueryRefusedError as error:
        return refusal(error)


def words(bench: Bench, request: Request) -> dict[str, list[str]]:
    """Return the words that a query can have, for completion."""
    job = asked_job(bench, request)
    texts, catalog = job.registered
    functions = {*function_names(), *AGGREGATES, *RANKS, *OTHER_ROWS}
    return {
        "relations": catalog.names(),
        "columns": sorted({column for each in catalog.streams.values() for column in each.schema.names}),
        "queries": sorted(texts.entries),
        "functions": sorted({*(each.upper() for each in functions if each.isidentifier()), *catalog.functions}),
        "keywords": sorted({*NOT_ALIASES, *_STATEMENT_WORDS}),
    }


_NUMBER = (int, float)
_KINDS: Mapping[Any, str] = {str: "a text", bool: "true or false", int: "a whole number", _NUMBER: "a number"}


class _Body:
    """The values of a request's body."""

    def __init__(self, request: Request, *known: str) -> None:
        self._values: Mapping[str, Any] = request.state.body
        unknown = [name for name in self._values if name not in known]
        if unknown:
            raise OptionError(f"unknown values: {', '.join(unknown)[:100]}", expected=", ".join(known))

    def get(self, name: str, kind: Any, default: Any = None) -> Any:
        """Return a value of a kind; raise OptionError for another kind."""
        value = self._values.get(name, default)
        if value is None or (isinstance(value, kind) and isinstance(value, bool) == (kind is bool)):
            return value
        raise OptionError(f"{name}={str(value)[:100]!r}", expected=_KINDS[kind])


def change(bench: Bench, request: Request) -> Response:
    """Create, alter, pause, resume or drop a query, as the method and the body say; the journal has it on return."""
    job = asked_job(bench, request)
    try:
        if request.method == "POST":
            _create(job, _Body(request, "name", "query", "weight", "active", "buckets", "view"))
        elif request.method == "PATCH":
            name = job.spelled(request.path_params["name"])
            _alter(job, name, _Body(request, "query", "weight", "active", "keep_state", "reason"))
        else:
            name = job.spelled(request.path_params["name"])
            storage = {f"storage.{key}": value for key, value in bench.watch.storage.items()}
            given = GivenForTables.of(storage, overwrite=False)
            whole = bool(_Body(request, "delete_table").get("delete_table", bool, default=False))
            drop_query(job.checkpoint, name, delete_table=whole, options=given.options)
    except QueryRefusedError as error:
        return refusal(error)
    version = Journal(job.checkpoint).version()
    return JSONResponse({"job": job.name, "version": version}, 201 if request.method == "POST" else 200)


def refusal(error: QueryRefusedError) -> Response:
    """Return a problem document with the place in the text."""
    place = {"line": error.line, "column": error.column, "excerpt": error.excerpt}
    return JSONResponse({"error": error.problem, "expected": error.expected, "hint": error.hint, **place}, 400)


def _create(job: HostedJob, given: _Body) -> None:
    name, query = given.get("name", str, ""), given.get("query", str, "")
    if given.get("view", bool, default=False):
        record(job.checkpoint, Change("view", name, query))
        return
    values = {"weight": given.get("weight", _NUMBER, 1), "buckets": given.get("buckets", int, 1)}
    active = given.get("active", bool, default=True)
    record(job.checkpoint, Change("create", name, query, **values, active=active))


def _alter(job: HostedJob, name: str, given: _Body) -> None:
    query, weight, active = given.get("query", str), given.get("weight", _NUMBER), given.get("active", bool)
    if query is None and weight is None and active is None:
        raise OptionError("nothing to change is given", expected="query, weight or active")
    if query is not None or weight is not None:
        record(job.checkpoint, Change("alter", name, query, weight=weight))
    if active is not None:
        since = now_us() if given.get("keep_state", bool, default=False) else None
        pause = Change("deactivate", name, reason=given.get("reason", str), kept_since_us=since)
        record(job.checkpoint, Change("activate", name) if active else pause)
