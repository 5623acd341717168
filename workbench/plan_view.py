"""``/api/v1/plan``: the plan of a table's query or of hosted queries, and the way of the oldest answer through it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.responses import Response

from ..conf.errors import CheckpointError, OptionError
from ..core.feedback.checkpoint_layout import SparkTimes
from ..core.feedback.offsets import journaled_offsets, whole_offset
from ..core.watermark.bounds import AFTER_ALL, is_finite
from ..delta_format.log import commit_info
from ..hosting.host_lease import writer_lease
from ..plan.picture import draw
from ..sink.figures.summary import CommitSummary, summary_of
from ..sink.figures.waits import BatchSpan, OldestWait, batch_spans, moment, oldest_wait
from ..storage.folder import TableFolder
from .bench import count_of
from .jobs import HostedJob, job_of
from .plan_graph import (
    PlanGraph,
    PlanNode,
    bound_query,
    hosted_graph,
    job_graph,
    received,
    stage_backlog,
    stored_graph,
    with_partition,
)
from .watch import UnknownNameError

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.routing import Route

    from ..hosting.registry import Registry
    from ..hosting.reports import HostReport, PartsReport
    from .bench import Bench
    from .watch import WatchedTable

_LOOK_BACK = 20
_DEPTH, _MOST_DEPTH = 12, 100
_WHOLE_QUERIES = 8
_SHOWN_QUERIES, _MOST_QUERIES = 40, 200
_RATE_COMMITS = 5
_MOST_PARTS = 12

Offset = Mapping[str, Any]


class SeenCommit(NamedTuple):
    """A commit with what is on storage around it."""

    version: int
    summaries: list[CommitSummary]  # those up to it, oldest first
    offsets: list[Offset]  # of the package's sources, in the order of the plan; none if the journal has lost them
    earlier: list[Offset]  # of a batch shortly before, for rates
    now_us: int  # the time at which its waits are judged
    latest: bool
    after: CommitSummary | None = None

    @property
    def summary(self) -> CommitSummary:
        return self.summaries[-1]

    @property
    def seconds(self) -> float | None:
        """The time since the commit before."""
        if len(self.summaries) < 2:
            return None
        return max(self.summaries[-1].committed_at_us - self.summaries[-2].committed_at_us, 1) / 1e6


def seen_commit(
    table: WatchedTable, version: int | None, checkpoint: TableFolder | None, running_us: int | None
) -> SeenCommit | None:
    """Return a commit of a table's query, by default the last one; None if there is none.

    `running_us` is the present time if the query runs: waits at its last commit last until now. Raises UnknownNameError
    if no query made that version.
    """
    commits = table.commits
    if version is not None and (not commits or version < commits[0][0]):
        commits = _older(table.folder, version)
    upto = [each for each in commits if version is None or each[0] <= version]
    if not upto:
        if version is None:
            return None
        raise UnknownNameError(f"no query made version {version} of the table", expected="a version of its history")
    mine = [summary for _, summary in upto if summary.query_id == upto[-1][1].query_id]
    latest = bool(table.commits) and upto[-1][0] == table.commits[-1][0]
    offsets = [] if checkpoint is None else source_offsets(checkpoint, mine[-1].batch_id)
    before = mine[max(len(mine) - 1 - _RATE_COMMITS, 0)]
    earlier = source_offsets(checkpoint, before.batch_id) if checkpoint is not None and len(mine) > 1 else []
    now_us = max(mine[-1].committed_at_us, running_us if latest and running_us is not None else 0)
    after = next((summary for each, summary in commits if each > upto[-1][0]), None)
    return SeenCommit(upto[-1][0], mine, offsets, earlier, now_us, latest, after)


def _older(folder: TableFolder, version: int) -> list[tuple[int, CommitSummary]]:
    found: list[tuple[int, CommitSummary]] = []
    for each in range(max(version - _LOOK_BACK, 0), version + 1):
        with contextlib.suppress(FileNotFoundError):
            info = commit_info(folder, each)
            summary = None if info is None else summary_of(info)
            if summary is not None:
                found.append((each, summary))
    return found


def source_offsets(checkpoint: TableFolder, batch: int) -> list[Offset]:
    """Return the whole end offsets of the package's sources; none if the journal no longer has the batch."""
    with contextlib.suppress(OSError, ValueError, KeyError, CheckpointError):
        found = journaled_offsets(checkpoint, batch)
        return [whole_offset(each, checkpoint) for each in found if isinstance(each, dict) and "progress" in each]
    return []


class PlanView(NamedTuple):
    """A graph with the way of the oldest answer through it."""

    graph: PlanGraph
    root: str
    wait: OldestWait | None
    way: list[str]
    rates: Mapping[tuple[str, str], float]  # rows per second, by edge
    version: int | None
    queries: int | None  # how many the job hosts; None for a query of its own
    checkpoint: str | None = None
    spans: Sequence[BatchSpan] = ()

    def to_json(self) -> dict[str, Any]:
        edges = [(before, node.name) for node in self.graph.nodes.values() for before in node.inputs]
        critical = set(self.way)
        wait = None if self.wait is None else {**vars(self.wait), "sentence": self.wait.sentence, "path": self.way}
        return {
            "root": self.root,
            "version": self.version,
            "queries": self.queries,
            "checkpoint": self.checkpoint,
            "nodes": [{**each.to_json(), "critical": each.name in critical} for each in self.graph.nodes.values()],
            "edges": [
                {
                    "from": before,
                    "to": after,
                    "rows_per_s": self.rates.get((before, after)),
                    "critical": before in critical and after in critical,
                    "samples": self._samples(before, after),
                }
                for before, after in edges
            ],
            "wait": wait,
            "spans": [each._asdict() for each in self.spans],
        }

    def _samples(self, before: str, after: str) -> list[str]:
        """Return the entities whose samples are of rows on an edge."""
        one, other = self.graph.nodes[before], self.graph.nodes[after]
        return [each.sample for each in (one, other) if each.sample and (each is one) != (each.kind == "table")]

    def svg(self) -> str:
        texts = {edge: f"{rate:,.0f} rows/s" for edge, rate in self.rates.items()}
        label = "plan" if self.wait is None else f"plan: {self.wait.sentence}"
        return draw([each.box for each in self.graph.nodes.values()], texts, self.way, label)


class TableWait(NamedTuple):
    """A commit of a query of its own, with the query's steps and the place where its oldest answer waits."""

    seen: SeenCommit | None  # None before the first commit, as is `wait`
    graph: PlanGraph
    wait: OldestWait | None


def wait_of_table(table: WatchedTable, version: int | None, now_us: int, *, runs: bool) -> TableWait:
    """Return where a query's oldest answer waits at a commit. If it `runs`, waits at the last one last until now."""
    checkpoint = _checkpoint(table)
    seen = seen_commit(table, version, checkpoint, now_us if runs else None)
    summary, offsets = (None, []) if seen is None else (seen.summary, seen.offsets)
    graph = stored_graph(checkpoint, table.name, summary, offsets, latest=seen is not None and seen.latest)
    if seen is None:
        return TableWait(None, graph, None)
    queue = next((each.name for each in graph.nodes.values() if each.title.startswith("queue")), "queue")
    return TableWait(seen, graph, oldest_wait(seen.summaries, offsets, seen.now_us, graph.backlogs, queue=queue))


def _checkpoint(table: WatchedTable) -> TableFolder | None:
    return None if table.checkpoint is None else TableFolder(table.checkpoint, table.storage)


def plan_of_table(table: WatchedTable, version: int | None, now_us: int) -> PlanView:
    """Return the plan of the query that writes a table of its own."""
    lease = writer_lease(table.folder, table.checkpoint)
    runs = lease is not None and not lease.has_ended(now_us)
    seen, graph, wait = wait_of_table(table, version, now_us, runs=runs)
    root = f"table:{table.name}"
    if seen is None or wait is None:
        return PlanView(graph, root, None, [], {}, None, None)
    sources = [each.name for each in graph.nodes.values() if each.kind in ("source", "input")]
    graph, way = with_way(graph, wait, sources, seen.offsets)
    rates, spans = rates_of(graph, seen, sources), _spans(_checkpoint(table), seen)
    return PlanView(graph, root, wait, way, rates, seen.version, None, spans=spans)


def _spans(checkpoint: TableFolder | None, seen: SeenCommit) -> list[BatchSpan]:
    spark = None if checkpoint is None else SparkTimes.read(checkpoint, seen.summary.batch_id)
    return batch_spans(seen.summary, seen.after, spark)


def with_way(
    graph: PlanGraph, wait: OldestWait, sources: Sequence[str], offsets: Sequence[Offset]
) -> tuple[PlanGraph, list[str]]:
    """Return the graph with the partition that is waited for, if one is, and the way from there to the end."""
    if wait.kind == "nothing":
        return graph, []
    if wait.kind != "partition":
        return graph, graph.path(wait.name) if wait.name in graph.nodes else []
    number = next((at for at, each in enumerate(offsets) if wait.name in each["progress"]), 0)
    source = sources[number] if number < len(sources) else ""
    found = with_partition(graph, wait.name, source)
    return found, found.path(f"partition:{wait.name}") if source else [f"partition:{wait.name}"]


def rates_of(graph: PlanGraph, seen: SeenCommit, sources: Sequence[str]) -> dict[tuple[str, str], float]:
    """Return the rows per second on each edge of which an end has a count."""
    out: dict[str, float] = {}
    taken: dict[str, float] = {}
    before = seen.summaries[max(len(seen.summaries) - 1 - _RATE_COMMITS, 0)]
    spent = (seen.summary.committed_at_us - before.committed_at_us) / 1e6
    if spent > 0 and len(seen.earlier) == len(seen.offsets):
        for name, was, offset in zip(sources, seen.earlier, seen.offsets, strict=False):
            out[name] = max(received(offset) - received(was), 0) / spent
    for name, node in graph.nodes.items():
        if node.rows_out is not None and seen.seconds:
            out[name] = node.rows_out / seen.seconds
        if node.rows_in is not None and seen.seconds:
            taken[name] = node.rows_in / seen.seconds
    edges = [(each, node.name) for node in graph.nodes.values() for each in node.inputs]
    # What several steps feed shows its own count at none of them.
    known = {
        (each, after): out.get(each, taken.get(after) if len(graph.nodes[after].inputs) == 1 else None)
        for each, after in edges
    }
    return {edge: rate for edge, rate in known.items() if rate is not None}


def plan_of_job(
    job: HostedJob, root: str, text: str, limit: int, table: WatchedTable | None, seen: SeenCommit | None, now_us: int
) -> PlanView:
    """Return the plan of a query of a job, of a text, or of the whole job: in parts if it hosts many queries."""
    from ..hosting.registry import registry_now
    from ..hosting.reports import Reports, part_costs, part_reports, view_backlogs
    from ..language import bind
    from ..operators.relations.plan.properties import clock_of

    registry = registry_now(job.checkpoint)
    host, parts = Reports(job.folder).host(), part_reports(job.folder)
    latest = seen is None or seen.latest
    offsets = seen.offsets if seen is not None else source_offsets(job.folder, job.last_batch())
    streams = _streams(registry, offsets)
    chosen = root.removeprefix("query:") if root.startswith("query:") else ""
    if text:
        queries = {"": bind(text, registry.catalog)}
    elif chosen:
        queries = {job.spelled(chosen): bound_query(job.spelled(chosen), registry)}
    elif len(registry.active) <= _WHOLE_QUERIES:
        queries = {name: bound_query(name, registry) for name in registry.active}
    else:
        reads = {name: each.query.reads for name, each in registry.active.items()}
        graph = job_graph(reads, streams, limit)
        return PlanView(graph, "", None, [], {}, None, len(reads), spans=hosted_spans(job.folder, host, parts, {}))
    costs = part_costs(parts) if latest else {}
    queues = view_backlogs(job.folder, registry) if latest else {}
    graph = hosted_graph(queries, registry, host.queries, streams, now_us, costs, queues)
    titles = {key: each.title for each in graph.nodes.values() if each.part for key in costs[each.part].keys}
    spans: Sequence[BatchSpan] = ()
    if not text:
        spans = _spans(job.folder, seen) if seen and not latest else hosted_spans(job.folder, host, parts, titles)
    graph, ends = with_stream_steps(graph, job.folder, registry, offsets, latest=latest)
    name = next(iter(queries), "")  # none is active
    shown = f"query:{name}" if len(queries) == 1 else ""
    if seen is None or table is None or not chosen:
        return PlanView(graph, shown, None, [], {}, None, len(registry.queries), spans=spans)
    reads = [each for each in queries[name].reads if each in streams]
    mine = [streams[each] for each in reads]
    held = graph.backlogs
    if held is not None and clock_of(queries[name].plan) == "event":
        held = (*held, *stage_backlog(job.folder, name)) if latest else None
    last = graph.nodes[shown].inputs[0]
    wait = oldest_wait(seen.summaries, mine, seen.now_us, held, queue=last, complete=_complete(mine))
    graph, way = with_way(graph, wait, [ends.get(each, f"stream:{each}") for each in reads], mine)
    rates = rates_of(graph, seen, [])
    return PlanView(graph, shown, wait, way, rates, seen.version, len(registry.queries), spans=spans)


def hosted_spans(
    checkpoint: TableFolder, host: HostReport, reports: Sequence[Sequence[PartsReport]], titles: Mapping[str, str]
) -> list[BatchSpan]:
    """Return the parts of the time of a job's last batch with results, within Spark's steps if they are known.

    `titles` name the parts of queries. Shards run side by side, so a stage lasts from the begin of the first one to the
    end of the last one. Its parts divide this time as they divide the shards' work.
    """
    from ..hosting.reports import part_costs

    times, spark = host.times, SparkTimes.read(checkpoint, host.batch)
    around = batch_spans(None, None, spark) or [BatchSpan("batch", 0, 0.0, times.committed_s)]
    within = next((at for at, each in enumerate(around) if "addBatch" in each.name), 0)
    if not times.committed_s:
        return around if spark is not None else []
    since_s = 0.0 if spark is None else max((times.began_us - spark.began_us) / 1e6, around[within].start_s)
    found: list[BatchSpan] = []

    def add(name: str, depth: int, begin_s: float, end_s: float, *, measured: bool = True) -> None:
        if end_s > begin_s:
            depth += around[within].depth
            found.append(BatchSpan(name, depth, since_s + begin_s, end_s - begin_s, measured))

    add("look at the tables", 1, 0.0, times.started_s)
    add("Spark's job", 1, times.started_s, times.merged_s)
    done_s = times.started_s
    for name, gap, stage in zip(_STAGES, _GAPS, reports, strict=True):
        ran = [each for each in stage if each.batch == host.batch]
        # A worker's clock may differ from the driver's.
        begin_s = min(((each.began_us - times.began_us) / 1e6 for each in ran), default=times.merged_s)
        begin_s = max(begin_s, done_s)
        end_s = max(((each.began_us - times.began_us) / 1e6 + each.spent_s for each in ran), default=0.0)
        end_s = min(end_s, times.merged_s)
        if end_s <= begin_s:
            continue
        add(gap, 2, done_s, begin_s, measured=False)
        add(name, 2, begin_s, end_s)
        done_s, scale = end_s, (end_s - begin_s) / sum(each.spent_s for each in ran)
        named: dict[str, float] = {}
        for each in part_costs([ran], host.batch).values():
            title = titles.get(each.key, "other parts")
            named[title] = named.get(title, 0.0) + each.spent_s * scale
        for title, seconds in sorted(named.items(), key=lambda item: -item[1])[:_MOST_PARTS]:
            add(title, 3, begin_s, begin_s + seconds)
            begin_s += seconds
    add("merge into the tables", 2, done_s, times.merged_s, measured=False)
    add("commit", 1, times.merged_s, times.committed_s)
    return [*around[: within + 1], *found, *around[within + 1 :]]


_STAGES = ("first stage", "second stage")
_GAPS = ("read the streams", "between the stages")


def _complete(offsets: Sequence[Offset]) -> str:
    """Return the time up to which all live partitions of some sources are complete."""
    bounds = [state["bound"] for each in offsets for state in each["progress"].values()]
    live = [bound for bound in bounds if bound != AFTER_ALL]
    if not live:
        return "the end" if bounds else "no known time"
    return moment(min(live)) if all(is_finite(bound) for bound in live) else "no known time"


def _streams(registry: Registry, offsets: Sequence[Offset]) -> dict[str, Offset]:
    """Return the offset of each stream. Spark numbers the streams' sources by their names."""
    names = _stream_names(registry)
    return dict(zip(names, offsets, strict=True)) if len(names) == len(offsets) else {}


def _stream_names(registry: Registry) -> list[str]:
    return sorted(each.name for each in registry.settings.streams if not each.static)


def with_stream_steps(
    graph: PlanGraph, checkpoint: TableFolder, registry: Registry, offsets: Sequence[Offset], *, latest: bool
) -> tuple[PlanGraph, dict[str, str]]:
    """Return the graph with each stream's earlier steps and first source, none for a stream that is a source."""
    stored = stored_graph(checkpoint, "", None, offsets, latest=latest)
    meeting = next((each for each in stored.nodes.values() if each.kind == "query"), None)
    names = _stream_names(registry)
    ends = list(meeting.inputs) if meeting is not None else [*stored.nodes["table:"].inputs]
    if len(ends) != len(names):
        return graph, {}
    nodes: dict[str, PlanNode] = dict(graph.nodes)
    first: dict[str, str] = {}
    for name, end in zip(names, ends, strict=True):
        stream = nodes.get(f"stream:{name}")
        if stream is None or not stored.nodes[end].inputs:
            continue
        steps = stored.below(end, _MOST_DEPTH).nodes
        nodes = {**steps, **nodes}
        nodes[stream.name] = dataclasses.replace(stream, inputs=(end,))
        first[name] = next(each.name for each in steps.values() if each.kind in ("source", "input"))
    held = None if graph.backlogs is None or stored.backlogs is None else (*graph.backlogs, *stored.backlogs)
    return dataclasses.replace(graph, nodes=nodes, backlogs=held), first


def plan_view(bench: Bench, request: Request) -> PlanView:
    """Return the part of a plan that a request names.

    Parameters: `table` and `version`, or `job` for hosted queries; `root` and `depth` for the part; `text` for a query
    that is not registered.
    """
    given = request.query_params
    depth = count_of(request, "depth", _DEPTH, _MOST_DEPTH)
    version = count_of(request, "version", -1, 10**18) if given.get("version") else None
    limit = count_of(request, "limit", _SHOWN_QUERIES, _MOST_QUERIES)
    root, text = given.get("root", ""), given.get("text", "")
    job = job_of(bench.watch, given.get("job"), given.get("table"))
    now_us = bench.watch.clock_us()
    if job is None:
        table = bench.watch.shown(given.get("table"))
        found = plan_of_table(table, version, now_us)._replace(checkpoint=table.checkpoint)
    else:
        if not root and not text and given.get("table") and not given.get("job"):
            root = f"query:{job.query_of(bench.watch.shown(given.get('table')))}"
        mine = job.table_of(bench.watch, root.removeprefix("query:")) if root.startswith("query:") else None
        seen = None if mine is None else seen_commit(mine, version, job.folder, now_us if job.runs(now_us) else None)
        found = plan_of_job(job, root, text, limit, mine, seen, now_us)._replace(checkpoint=job.checkpoint)
    start = root or found.root
    if not start:
        return found
    if start not in found.graph.nodes:
        raise OptionError(f"the plan has no step {start[:100]!r}", expected="the name of a step, as the plan gives it")
    graph = found.graph.below(start, depth)
    way = [each for each in found.way if each in graph.nodes]
    return found._replace(graph=graph, root=start, way=way)


def routes(bench: Bench) -> list[Route]:
    """Return the routes of plans, as JSON and as a picture, and those of hosted queries."""

    def plan(request: Request) -> dict[str, Any]:
        return plan_view(bench, request).to_json()

    def picture(request: Request) -> Response:
        return Response(plan_view(bench, request).svg(), media_type="image/svg+xml")

    def of_queries(name: str) -> Callable[[Request], Any]:
        def answer(request: Request) -> Any:
            from . import query_view  # only where queries are hosted

            return getattr(query_view, name)(bench, request)

        return answer

    def binds(request: Request) -> bool:
        return job_of(bench.watch, request.query_params.get("job"), request.query_params.get("table")) is not None

    base, hosted = "/api/v1/queries", f"{__package__}.query_view"
    return [
        bench.endpoint("/api/v1/plan", plan, apart=binds, needs=hosted),
        bench.endpoint("/api/v1/plan.svg", picture, apart=binds, needs=hosted),
        bench.endpoint(base, of_queries("query_list"), apart=True, needs=hosted),
        bench.endpoint(base, of_queries("change"), methods=["POST"], apart=True, needs=hosted),
        bench.endpoint(f"{base}-words", of_queries("words"), apart=True, needs=hosted),
        bench.endpoint(f"{base}-plan", of_queries("explained"), apart=True, needs=hosted),
        bench.endpoint(f"{base}/{{name}}", of_queries("query_detail"), apart=True, needs=hosted),
        bench.endpoint(f"{base}/{{name}}", of_queries("change"), methods=["PATCH", "DELETE"], apart=True, needs=hosted),
        bench.endpoint(f"{base}/{{name}}/results", of_queries("query_results"), apart=True, needs=hosted),
    ]
