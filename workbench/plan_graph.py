"""The graph of a plan as it is on storage: of a query of its own, or of hosted queries with their shared parts."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from ..conf.units import format_duration_us
from ..core.feedback.checkpoint_layout import Kind, queue_of, read_plan_record, read_steps, stage_folder
from ..core.feedback.control import PART, SINK
from ..core.feedback.on_demand_watermark import WAITING
from ..core.feedback.reports import (
    REPORTS,
    OperatorReport,
    QueueReport,
    StageReport,
    WindowReport,
    read_feed_reports,
    read_reports,
)
from ..core.watermark.bounds import AFTER_ALL, is_finite
from ..plan.picture import StepBox
from ..sink.figures.summary import CommitSummary, QueueBacklog, look_at_queue
from ..sink.figures.waits import StageBacklog, moment
from ..storage.folder import TableFolder

if TYPE_CHECKING:
    from ..hosting.registry import Registry
    from ..hosting.reports import PartCost, QueryReport, ViewBacklog
    from ..language import Query

__all__ = ["PlanGraph", "PlanNode", "bound_query", "hosted_graph", "job_graph", "received", "stored_graph"]

_NO_WINDOW = -(1 << 63)
_OPERATORS = {
    "queue": "queue",
    "windows": "window",
    "reorder": "union or order",
    "joins": "join",
    "latest": "newest rows",
    "numbering": "row numbers",
}

Figure = tuple[str, int | float | str | None, str]
"""A name, a value, and its unit: ``rows``, ``s``, ``bytes``, or nothing."""


@dataclasses.dataclass(frozen=True)
class PlanNode:
    """A step of a plan with what is known of it."""

    name: str
    title: str
    kind: str  # "source", "partition", "operator", "step", "query", "table", or "more"
    facts: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()
    shared: tuple[str, ...] = ()  # the other queries that share it
    rows_in: int | None = None  # of the last batch
    rows_out: int | None = None
    hidden: int = 0  # inputs that were not loaded
    part: str = ""  # its key, if it is a part of hosted queries that a batch has evaluated
    sample: str = ""  # the entity of which a control samples the rows: those that come to a table, else those that go

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "figures": [{"name": name, "value": value, "unit": unit} for name, value, unit in self.figures],
        }

    @property
    def box(self) -> StepBox:
        kind = {"operator": "operator", "input": "operator"}.get(self.kind, self.kind)
        facts = [f"{name}: {_shown(name, value, unit)}" for name, value, unit in self.figures if value is not None]
        shared = [f"shared with {', '.join(self.shared[:3])}{' and others' if len(self.shared) > 3 else ''}"]
        hidden = [f"{self.hidden} inputs are not shown"] if self.hidden else []
        lines = (*self.facts, *facts, *(shared if self.shared else []), *hidden)
        return StepBox(self.name, self.title, lines, self.inputs, kind + " shared" * bool(self.shared))


def _shown(name: str, value: float | str | None, unit: str) -> str:
    if not isinstance(value, (int, float)):
        return str(value)
    if unit == "s":
        return format_duration_us(value * 1e6) if value >= 0.01 or not value else f"{value * 1e3:.1f} ms"
    number = f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"
    return number if name.startswith("rows") else f"{number} {unit}".strip()


@dataclasses.dataclass(frozen=True)
class PlanGraph:
    """Steps by name, inputs before what reads them, and what stages hold."""

    nodes: Mapping[str, PlanNode]
    # None if stages may hold rows, but their reports are of a later batch
    backlogs: tuple[StageBacklog, ...] | None = ()

    def below(self, root: str, depth: int) -> PlanGraph:
        """Return the root and the steps at most so many steps before it; a step at the limit counts its inputs."""
        near = {root: 0}
        waiting = [root]
        for name in waiting:
            for each in self.nodes[name].inputs:
                if each not in near and near[name] < depth:
                    near[each] = near[name] + 1
                    waiting.append(each)
        kept: dict[str, PlanNode] = {}
        for name, node in self.nodes.items():
            if name in near:
                there = tuple(each for each in node.inputs if each in near)
                kept[name] = dataclasses.replace(node, inputs=there, hidden=len(node.inputs) - len(there))
        return dataclasses.replace(self, nodes=kept)

    def path(self, start: str) -> list[str]:
        """Return the steps from one of them to the end, the shortest way."""
        after: dict[str, list[str]] = {}
        for node in self.nodes.values():
            for each in node.inputs:
                after.setdefault(each, []).append(node.name)
        ways = [[start]] if start in self.nodes else []
        seen = {start}
        for way in ways:
            if way[-1] not in after:
                return way
            further = [each for each in after[way[-1]] if each not in seen]
            seen.update(further)
            ways += [[*way, each] for each in further]
        return []


def with_partition(graph: PlanGraph, feed: str, source: str) -> PlanGraph:
    """Return the graph with an input partition as a step before its source."""
    name = f"partition:{feed}"
    title = feed if len(feed) <= 60 else "…" + feed[-59:]
    nodes = {name: PlanNode(name, f"partition {title}", "partition"), **graph.nodes}
    if source in nodes:
        nodes[source] = dataclasses.replace(nodes[source], inputs=(name, *nodes[source].inputs))
    return dataclasses.replace(graph, nodes=nodes)


def stored_graph(
    checkpoint: TableFolder | None,
    table: str,
    summary: CommitSummary | None,
    sources: Sequence[Mapping[str, Any]],
    *,
    latest: bool,
) -> PlanGraph:
    """Return the graph of a query of its own, from its start's record or, without one, from its operators'.

    `sources` are the offsets of the batch. Reports of stages are of the last batch, so only the `latest` commit has
    their figures.
    """
    steps = () if checkpoint is None else stored_steps(checkpoint, sources)
    nodes: dict[str, PlanNode] = {}
    backlogs: list[StageBacklog] = []
    lost = not latest and any(_operator_kind(each["folder"]) in WAITING for each in steps)
    number = 0
    for each in steps:
        node = PlanNode(each["name"], each["text"], each["kind"], tuple(each["facts"]), tuple(each["inputs"]))
        if each["kind"] == "source":
            if number < len(sources):
                node = _with_offset(node, sources[number])
            number += 1
        mine = queue_of(f"/{each['folder']}")
        node = node if mine is None else dataclasses.replace(node, sample=f"queue/{mine[1]}")
        if each["kind"] != "source" and each["folder"] and checkpoint is not None and latest:
            node, held = _with_reports(node, checkpoint, each["folder"])
            backlogs += held
        nodes[node.name] = node
    ends = set(nodes) - {each for node in nodes.values() for each in node.inputs}
    ways = tuple(name for name in nodes if name in ends)
    last = PlanNode(f"table:{table}", f"table {table}", "table", inputs=ways, sample=SINK)
    if summary is not None:
        last = dataclasses.replace(last, figures=tuple(_table_figures(summary)), rows_in=summary.rows)
    nodes[last.name] = last
    return PlanGraph(nodes, None if lost else tuple(backlogs))


def _operator_kind(folder: str) -> str:
    """Return the kind of the operator whose reports are in a folder of the checkpoint."""
    return folder.rsplit("/", 1)[0].removeprefix("upstream-").partition("-")[0]


def stored_steps(checkpoint: TableFolder, sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the steps that a query's start has recorded; without a record, its operators in a row."""
    recorded = read_steps(checkpoint)
    if recorded is not None:
        return recorded
    empty: dict[str, Any] = {"facts": [], "folder": "", "fixed": {}, "changeable": {}}
    found = [
        {**empty, "name": f"source-{number}", "kind": "source", "text": f"source {number}", "inputs": []}
        for number, _ in enumerate(sources)
    ]
    before = [each["name"] for each in found]
    for stage in read_plan_record(checkpoint.location) or ():
        for part in stage:
            step = {"name": part["place"], "kind": "operator", "text": part["name"], "folder": part["place"]}
            found.append({**empty, **step, "fixed": part["identity"], "inputs": before})
            before = [part["place"]]
    return found


def _with_offset(node: PlanNode, offset: Mapping[str, Any]) -> PlanNode:
    sample = f"source/{offset['id']}" if "id" in offset else ""
    return dataclasses.replace(node, figures=tuple(_source_figures(offset)), sample=sample)


def _source_figures(offset: Mapping[str, Any]) -> Iterable[Figure]:
    states = [state for feed, state in offset["progress"].items() if feed not in set(offset.get("ended", ()))]
    yield "partitions", len(offset["progress"]), ""
    if len(states) < len(offset["progress"]):
        yield "ended", len(offset["progress"]) - len(states), ""
    bounds = [state["bound"] for state in states if state["bound"] != AFTER_ALL]
    if bounds and all(is_finite(bound) for bound in bounds):
        yield "low-watermark", moment(min(bounds)), ""
    for name, word in (("received", "rows received"), ("late", "late"), ("suspects", "suspect")):
        total = sum(state.get(name, 0) for state in offset["progress"].values())
        if total or name == "received":
            yield word, total, "rows" if word != "rows received" else ""


def received(offset: Mapping[str, Any]) -> int:
    """Return the rows of a source since its checkpoint began."""
    return sum(state.get("received", 0) for state in offset["progress"].values())


def _table_figures(summary: CommitSummary) -> Iterable[Figure]:
    yield "rows of the batch", summary.rows, "rows"
    yield "keys changed", summary.applied, ""
    yield "updates superseded", summary.superseded, ""
    if summary.keys is not None:
        yield "keys", summary.keys, ""
    if summary.staleness is not None:
        yield "staleness p99", summary.staleness.p99, "s"


def _with_reports(node: PlanNode, checkpoint: TableFolder, folder: str) -> tuple[PlanNode, list[StageBacklog]]:
    """Return a step with the figures that its shards report, and what it holds."""
    place = checkpoint.below(folder) if not folder.startswith("/") else TableFolder(folder, checkpoint.storage)
    kind = REPORTS.get(cast("Kind", _operator_kind(folder)))
    if kind is None:
        if node.kind != "input":
            return node, []
        feeds = read_feed_reports(place.location)
        live = [each.bound for each in feeds if each.bound is not None]
        figures: list[Figure] = [
            ("partitions", len(feeds), ""),
            ("rows received", sum(each.rows for each in feeds), ""),
        ]
        figures += [("low-watermark", moment(min(live)), "")] if live and len(live) == len(feeds) else []
        return dataclasses.replace(node, figures=tuple(figures)), []
    reports = read_reports(place, kind)
    if not reports:
        return node, []
    held = sum(each.kept for each in reports)
    figures = [("rows held", held, "rows")] if held else []
    rows_in = rows_out = None
    backlog: list[StageBacklog] = []
    if kind is QueueReport:
        queue = cast("list[QueueReport]", reports)
        queued = look_at_queue([queue], max(each.batch_id for each in queue))
        assert queued is not None
        rows_in, rows_out = queued.did.arrived, queued.did.applied
        figures = _queue_figures(queued)
    elif kind is WindowReport:
        windows = cast("list[WindowReport]", reports)
        rows_out = sum(each.results + each.partial + each.corrected for each in windows)
        figures += [("results", rows_out, "rows"), ("late", sum(each.late for each in windows), "rows")]
    wrote = sum(each.state_bytes for each in reports)
    figures += [("state written in the batch", wrote, "bytes")] if wrote else []
    figures += [(reason, count, "rows") for reason, count in _incomplete(reports).items() if count]
    bounds = [bound for each in reports for bound in each.progress.values() if is_finite(bound)]
    if bounds:
        figures.append(("low-watermark", moment(min(bounds)) if kind.in_micros else min(bounds), ""))
    if unreleased := 0 if kind is QueueReport else sum(each.unreleased for each in reports):
        backlog.append(_backlog(node, reports, unreleased))
    return dataclasses.replace(node, figures=tuple(figures), rows_in=rows_in, rows_out=rows_out), backlog


def _queue_figures(queue: QueueBacklog) -> list[Figure]:
    return [
        ("rows in", queue.did.arrived, "rows"),
        ("rows out", queue.did.applied, "rows"),
        ("waiting", queue.pending, "rows"),
        ("superseded in the queue", queue.did.superseded, "rows"),
    ]


def _incomplete(reports: Sequence[OperatorReport]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for each in reports:
        for reason, count in each.incomplete.items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def _backlog(node: PlanNode, reports: Sequence[OperatorReport], unreleased: int) -> StageBacklog:
    since = [at for each in reports if isinstance(at := getattr(each, "held_since_us", None), int)]
    needs = [each.needs for each in reports if each.needs is not None]
    word = node.title.partition(",")[0]
    text = f"the {word} holds {unreleased:,} rows"
    return StageBacklog(node.name, text, min(since, default=None), min(needs, default=None))


def stage_backlog(checkpoint: TableFolder, query: str) -> list[StageBacklog]:
    """Return the rows that the stages of hosted queries hold for the low-watermark, as a backlog of one of them."""
    stages = [TableFolder(stage_folder(checkpoint.location, each), checkpoint.storage) for each in (0, 1)]
    reports = [each for stage in stages for each in read_reports(stage, StageReport) if each.needs is not None]
    if not reports:
        return []
    since = [each.held_since_us for each in reports if each.held_since_us is not None]
    needs = [each.needs for each in reports if each.needs is not None]
    text = "the job holds rows for queries by event time"
    return [StageBacklog(f"query:{query}", text, min(since, default=None), min(needs))]


def _part_name(key: str, query: str) -> str:
    return "part:" + hashlib.sha256(f"{key}\n{query}".encode()).hexdigest()[:16]


def hosted_graph(
    queries: Mapping[str, Query],
    registry: Registry,
    reports: Mapping[int, QueryReport],
    streams: Mapping[str, Mapping[str, Any]],
    now_us: int,
    costs: Mapping[str, PartCost],
    queues: Mapping[int, ViewBacklog] = MappingProxyType({}),
) -> PlanGraph:
    """Return the graph of some hosted queries: each part that several of them share is one step.

    `queries` are bound, by name; a name that is not registered is that of a text. `streams` are the offsets of sources.
    `costs` are by the key of a part, and `queues` by incarnation.
    """
    from ..hosting.shared_parts import shared_parts
    from ..language import plan_parts

    nodes: dict[str, PlanNode] = {}
    backlogs: list[StageBacklog] = []
    for name, query in queries.items():
        registered = registry.queries.get(name)
        shared = shared_parts(query, registry, None if registered is None else name)
        places: dict[str, str] = {}
        for part in plan_parts(query, shared):
            place = f"stream:{part.reads}" if part.reads else _part_name(part.key, "" if part.shared.whole else name)
            places[part.key] = place
            if place in nodes:
                continue
            facts = [f"keeps {part.keeps}"] if part.keeps else []
            if part.shared.slices:
                facts.append(f"slices shared with {', '.join(part.shared.slices[:3])}")
            node = PlanNode(
                place, part.text, "source" if part.reads else "operator" if part.keeps else "step", tuple(facts)
            )
            node = dataclasses.replace(
                node, inputs=tuple(places[each] for each in part.inputs), shared=part.shared.whole
            )
            node = _with_cost(node, part.key, costs)
            if part.reads in streams:
                node = _with_offset(node, streams[part.reads])
            nodes[place] = node
        end, held = _query_node(name, query, registry, reports, now_us)
        last = places[[*places][-1]]
        nodes[end.name] = dataclasses.replace(end, inputs=(last,))
        queue = None if registered is None else queues.get(registered.id)
        if queue is not None:
            nodes[last] = _with_queue(nodes[last], queue, now_us)
            # No result waits but in the queue.
            held = [dataclasses.replace(each, stage=last, text=f"the queue of {name} holds rows") for each in held]
        backlogs += held
    return PlanGraph(nodes, tuple(backlogs))


def _with_queue(node: PlanNode, queue: ViewBacklog, now_us: int) -> PlanNode:
    found: list[Figure] = [("budget", queue.budget, "")]
    found += [] if queue.backlog is None else _queue_figures(queue.backlog)
    found.append(("oldest", queue.to_json(now_us)["oldest"], "s"))
    return dataclasses.replace(node, figures=(*found, *node.figures))


def _with_cost(node: PlanNode, key: str, costs: Mapping[str, PartCost]) -> PlanNode:
    from ..hosting.reports import whole_cost

    cost = whole_cost(key, costs)
    if cost is None:
        return node
    figures: list[Figure] = [("time of tasks per batch", cost.average_s, "s"), ("rows changed", cost.rows, "rows")]
    figures += [("state", cost.bytes, "bytes")] if cost.bytes else []
    return dataclasses.replace(node, figures=tuple(figures), part=key, sample=f"{PART}/{key}")


def _query_node(
    name: str, query: Query, registry: Registry, reports: Mapping[int, QueryReport], now_us: int
) -> tuple[PlanNode, list[StageBacklog]]:
    registered = registry.queries.get(name)
    facts = [", ".join(query.schema.names)]
    node = PlanNode(f"query:{name}", f"query {name}" if registered is not None else "this query", "query", tuple(facts))
    report = None if registered is None else reports.get(registered.id)
    if registered is not None and not registered.active:
        facts.append(f"paused: {registered.reason}" if registered.reason else "paused")
    if report is None:
        return dataclasses.replace(node, facts=tuple(facts)), []
    since = report.oldest_us
    figures: list[Figure] = [
        ("rows taken", report.rows, "rows"),
        ("staleness p99", report.staleness_s, "s"),
        ("time to write results", report.cost_s, "s"),
        ("late", report.late or None, "rows"),
        ("waiting", None if since is None else max(now_us - since, 0) / 1e6, "s"),
    ]
    held = [] if since is None else [StageBacklog(node.name, f"results of {name} wait for a later batch", since)]
    return dataclasses.replace(node, facts=tuple(facts), figures=tuple(figures)), held


def job_graph(
    queries: Mapping[str, tuple[str, ...]], streams: Mapping[str, Mapping[str, Any]], limit: int
) -> PlanGraph:
    """Return the graph of a job of many queries without their operators, from the streams that each one reads."""
    read = dict.fromkeys(stream for reads in queries.values() for stream in reads)
    nodes: dict[str, PlanNode] = {}
    for name in read:
        figures = tuple(_source_figures(streams[name])) if name in streams else ()
        nodes[f"stream:{name}"] = PlanNode(f"stream:{name}", f"stream {name}", "source", figures=figures)
    for name, reads in [*queries.items()][:limit]:
        inputs = tuple(f"stream:{each}" for each in reads)
        nodes[f"query:{name}"] = PlanNode(f"query:{name}", f"query {name}", "query", inputs=inputs)
    if len(queries) > limit:
        rest = PlanNode("more", f"and {len(queries) - limit:,} more queries", "more", ("choose one by its name",))
        nodes[rest.name] = rest
    return PlanGraph(nodes)


def bound_query(name: str, registry: Registry) -> Query:
    """Return a registered query with its plan, also if it is paused; raise QueryRefusedError if it no longer binds."""
    from ..hosting.registry import bind_registered

    query = registry.queries[name]
    return query.bound if query.bound is not None else bind_registered(query, registry.catalog)
