"""The start of the streaming query that hosts all continuous queries, and the commit of its batches."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
import time
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

from ..conf.errors import EnvironmentMissingError, OptionError, UpstreamError
from ..conf.locations import checkpoint_location, is_client
from ..conf.session import register_data_source
from ..conf.units import now_us
from ..core.feedback.checkpoint_layout import query_queue_folder, states_folder
from ..core.feedback.offsets import journaled_offsets
from ..core.feedback.reports import QueueReport, read_reports
from ..core.pushdown.at_source import with_checkpoint
from ..core.pushdown.source_steps import ArrowStep
from ..core.rows.buckets import integers_with_hash
from ..operators.compile import bind_together, letters_location, places_aside, places_read
from ..operators.runtime.pack import PACKED_DDL
from ..operators.runtime.steps import ChainedSteps, arrow_step
from ..plan.nodes import Map, Node, Transform, check_complete, walk
from ..plan.rewrites import rewritten
from ..sink.commit.batch_identity import offsets_digest, read_offsets
from ..sink.commit.batch_name import running_batch
from ..sink.commit.metrics_table import gauges_of, record_times
from ..sink.figures.summary import look_at_queue
from ..sink.results.result_table import ResultTable
from ..sink.results.result_tables import ResultTables, delete_table
from ..storage.folder import TableFolder, folder_at
from .command_source import BATCH_S, CHECKPOINT, CommandSource
from .edits import check_tables, record
from .host_lease import HostLease
from .host_plan import HostPlans
from .journal import Change, Journal
from .lane_budgets import LaneBudgets
from .messages import Command, CommandOfTask, command_of_batch
from .output import BatchOutcome, outcome_of
from .registry import registry_at, registry_now
from .reports import HostTimes, Reports
from .scan import ScanStep
from .stage_states import StageStep, StateRecords
from .stages import FirstStage, SecondStage
from .table_merge import GivenForTables, MergeInShard, MergeStep, shown_to_tasks, tables_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ..sink.figures.summary import CommitSummary
    from .registry import Registry

_LOG = logging.getLogger("upstream.queries")


def build_host(
    streams: Mapping[str, Node],
    checkpoint: str,
    slots: Sequence[int],
    scan: Callable[[str], ArrowStep],
    steps: Sequence[ArrowStep],
    batch_s: float | None = None,
) -> DataFrame:
    """Return what leaves the last of some steps, which begin with the messages of the scans and the command source.

    Each step gets the rows of a slot in one task. The continuous queries are data of the commands. `batch_s` is the
    target duration of a batch in seconds; without it, each batch emits all results.
    """
    names = sorted(streams)
    session = streams[names[0]].session
    bound = bind_together([rewritten(streams[name], arrow_step) for name in names], checkpoint)
    register_data_source(session)
    session.dataSource.register(CommandSource)
    options = {CHECKPOINT: checkpoint, "slots": ",".join(map(str, slots))}
    options |= {} if batch_s is None else {BATCH_S: str(batch_s)}
    inputs = [each.rows.packed(scan(name)) for name, each in zip(names, bound, strict=True)]
    inputs.append(session.readStream.format(CommandSource.name()).options(**options).load())
    df = reduce(lambda left, right: left.union(right), inputs)
    tasks = _tasks(session, slots)
    for step in steps:
        df = df.repartition(tasks, "slot").mapInArrow(step, PACKED_DDL)
    return df


def _tasks(session: SparkSession, slots: Sequence[int]) -> int:
    return min(session.sparkContext.defaultParallelism, len(slots))


def host_steps(
    checkpoint: str,
    commands: Callable[[], Command],
    plans: HostPlans,
    given: GivenForTables,
    letters: Mapping[str, str] | None = None,
) -> list[ArrowStep]:
    """Return the steps between which rows change their tasks: both stages, the second with the merge of results."""
    first = functools.partial(
        FirstStage, plans=plans, storage=given.storage, checkpoint=checkpoint, letters=dict(letters or {})
    )
    second = functools.partial(SecondStage, plans=plans, checkpoint=checkpoint)
    folder = folder_at(states_folder(checkpoint))
    steps = [StageStep(commands, stage, plans.slots, folder) for stage in (first, second)]
    return [steps[0], ChainedSteps((steps[1], MergeInShard(commands, plans, given)))]


_PARTITIONS = "spark.sql.shuffle.partitions"
_ADAPTIVE = "spark.sql.adaptive.enabled"
_CODE = "spark.sql.codegen.wholeStage"
_lock = threading.Lock()


@contextlib.contextmanager
def set_meanwhile(session: SparkSession, shards: int, *, framed: bool) -> Generator[None]:
    """Change settings for a streaming query that the block starts: Spark copies them when it makes the query.

    With Spark's default partitions, each stateful step of a stream would have 200 tasks and state stores, most of them
    without a shard. A checkpoint keeps the number with which it began. If Spark only passes frames (`framed`), code of
    its own for each stage saves nothing, and takes time in the planning of each batch. So does an adaptive plan: it
    starts a job for each stage.
    """
    with _lock:
        given = {name: str(session.conf.get(name)) for name in (_PARTITIONS, _CODE, _ADAPTIVE)}
        wanted = {_PARTITIONS: str(min(int(given[_PARTITIONS]), shards)), _CODE: "false" if framed else given[_CODE]}
        wanted[_ADAPTIVE] = "false"
        changed = [name for name in given if wanted[name] != given[name]]
        try:
            for name in changed:
                session.conf.set(name, wanted[name])
            yield
        finally:
            for name in changed:
                session.conf.set(name, given[name])


def start(
    streams: Mapping[str, Node],
    checkpoint: str,
    *,
    name: str | None = None,
    batch_s: float | None = None,
    given: GivenForTables | None = None,
    late_aside: Collection[str] = (),
    **trigger: Any,
) -> StreamingQuery:
    """Start the streaming query that hosts the queries of a checkpoint.

    `streams` has the plans of all streams of the checkpoint's registry. Late rows of those in `late_aside` become dead
    letters. `batch_s` is the target duration of a batch in
    seconds; without it, and with ``once=True``, a batch emits all results. `trigger` is as for Spark's ``trigger``.
    """
    place = checkpoint_location(checkpoint)
    registry = registry_now(place)
    check_tables(
        registry,
        place,
        [found for plan in streams.values() for found in places_read(plan)],
        [found for plan in streams.values() for found in places_aside(plan)],
    )
    pace_s = None if trigger.get("once") else batch_s
    settings = registry.settings
    _check_streams(streams, {each.name: each.newest for each in settings.streams})
    lease = HostLease(folder_at(place))
    with lease.taken():
        letters = {each: letters_location(streams[each], place) for each in sorted(late_aside)}
        writer, framed = _writer(streams, place, registry, pace_s, given or GivenForTables(), lease.check, letters)
        if name is not None:
            writer = writer.queryName(name)
        if trigger:
            writer = writer.trigger(**trigger)
        session: Any = next(iter(streams.values())).session
        record_times(session._jsparkSession)
        with set_meanwhile(session, settings.shards, framed=framed):
            query = writer.start()
    lease.keep(lambda seconds: bool(query.awaitTermination(max(int(seconds), 1))), lambda: query.isActive)
    return query


def _writer(
    streams: Mapping[str, Node],
    place: str,
    registry: Registry,
    batch_s: float | None,
    given: GivenForTables,
    check: Callable[[], None],
    letters: Mapping[str, str],
) -> tuple[DataStreamWriter, bool]:
    """Return the writer of the host's query, and True if its rows never leave Arrow."""
    settings = registry.settings
    slots = integers_with_hash(range(settings.shards))
    plans = HostPlans(functools.partial(registry_at, place, nonce=settings.nonce), slots, registry.version)
    commands = CommandOfTask(place)
    df = build_host(
        streams,
        place,
        slots,
        lambda stream: ScanStep(commands, plans, stream, streams[stream].time_format, keeps_late=stream in letters),
        host_steps(place, commands, plans, given, letters),
        batch_s,
    )
    batches = HostedBatches(place, plans, given, check)
    writer = (
        with_checkpoint(df, place)
        .writeStream.foreachBatch(batches)
        .outputMode("append")
        .option("checkpointLocation", place)
    )
    plan: Any = df._jdf
    return writer, "MapInArrow" not in plan.logicalPlan().toString()


def _check_streams(streams: Mapping[str, Node], known: Mapping[str, bool]) -> None:
    missing, unknown = [name for name in known if name not in streams], [name for name in streams if name not in known]
    if missing or unknown or not known:
        problem = [f"{', '.join(missing)} missing"] if missing else []
        problem += [f"{', '.join(unknown)} unknown"] if unknown else []
        raise OptionError(
            f"the streams of the queries: {'; '.join(problem) or 'there is none'}",
            expected=f"those with which the checkpoint was begun: {', '.join(known)}"
            if known
            else "at least one stream",
            hint="call queries.source(name, …) for each before queries.start()",
        )
    for name, stream in streams.items():
        if is_client(stream.session):
            raise EnvironmentMissingError(
                "the session is a client of Spark Connect",
                expected="a session of the driver: the results of queries are committed beside it",
                hint="run the job that hosts the queries on the server, for example by spark-submit",
            )
        for step in walk(stream):
            # Steps on single rows only make tombstones, which queries accept. Queries over newest rows need no others.
            if not isinstance(step, Transform | Map) and not (known[name] and step.left_out and step.left_out.newest):
                check_complete(step.left_out, f"queries would lack rows of the stream '{name}'")


class HostedBatches:
    """Commits each batch: the function that Spark calls with the output of the last of :func:`host_steps`.

    Guarantee: each table has each batch once, in one commit, whatever fails meanwhile. A query that fails gets no
    commit in that batch or a later one, and the next change of the journal deactivates it. The other queries are not
    affected. `check` raises at the beginning of a batch if another job now hosts the queries.
    """

    def __init__(
        self,
        checkpoint: str,
        plans: HostPlans,
        given: GivenForTables,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self._checkpoint = checkpoint
        self._plans = plans
        self._journal = Journal(checkpoint)
        self._folder: TableFolder = folder_at(checkpoint)
        self._reports = Reports(self._folder)
        self._budgets = LaneBudgets(self._folder)
        self._states = StateRecords(folder_at(states_folder(checkpoint)))
        self._tables: ResultTables | None = None
        self._given = given
        self._check = check
        self._dropped = DroppedTables(given.options)

    def __call__(self, df: DataFrame, batch_id: int) -> None:
        began_us, began = now_us(), time.perf_counter()
        self._check()
        command = command_of_batch(self._checkpoint, batch_id)
        sink = self._sink(df)
        self._dropped.delete(self._plans.registry_of(command.version), sink.host)
        tables = tables_of(self._plans, command.version, self._given)
        failed = self._failed_since(command.version)
        seen = sink.look(table for number, table in tables.items() if number not in failed)
        tasks = _tasks(df.sparkSession, self._plans.slots)
        started = time.perf_counter()
        if self._plans(command.version).spreads_results:
            step = MergeStep(self._plans, command.version, seen.tables, self._given)
            df = df.repartition(tasks, "slot").mapInArrow(step, PACKED_DDL)
        with shown_to_tasks(df.sparkSession, seen.tables):
            outcome = outcome_of((row.control, row.frame) for row in df.collect())
        self._states.record(batch_id, {**self._states.before(batch_id), **outcome.states})
        for number, table in tables.items():
            if number in failed:
                outcome.fail(number, table.name, failed[number])
            elif table.name in seen.refused:
                outcome.fail(number, table.name, str(seen.refused[table.name]))
        merged = time.perf_counter()
        made = self._commit(sink, tables, outcome, command)
        if (gauges := gauges_of(df.sparkSession)) is not None:
            gauges.give({table.location: made[table.name] for table in tables.values() if table.name in made})
        commit_s = (time.perf_counter() - merged) / max(len(made), 1)
        # Tasks merge in parallel, and so do commits that wait for disks.
        costs = {number: outcome.took_s.get(number, 0.0) / tasks + commit_s for number in outcome.rows}
        for number, (name, reason) in sorted(outcome.failed.items()):
            record(self._checkpoint, Change("fail", name, reason=reason, id=number))
        committed = {number: _figures(made[table.name]) for number, table in tables.items() if table.name in made}
        started_s, merged_s, committed_s = (round(each - began, 6) for each in (started, merged, time.perf_counter()))
        times = HostTimes(began_us, started_s, merged_s, committed_s, tasks)
        journaled = journaled_offsets(self._folder, batch_id)
        lagging = self._budgets.take(batch_id, journaled, self._plans(command.version), times)
        self._reports.take(batch_id, outcome, tables.keys(), committed, times, costs, lagging)

    def _failed_since(self, version: int) -> dict[int, str]:
        """Return reasons by incarnation for the queries that have failed since a version of the registry.

        Shards do not see failures of tables, and a batch may be planned before the journal is read again.
        """
        changes = self._journal.read(range(version + 1, self._journal.version() + 1))
        return {each.id: each.reason or "" for each in changes if each.kind == "fail" and each.id is not None}

    def _commit(
        self, sink: ResultTables, tables: Mapping[int, ResultTable], outcome: BatchOutcome, command: Command
    ) -> dict[str, CommitSummary]:
        staged = {tables[number].name: found for number, found in outcome.staged.items()}
        failed = [tables[number] for number in outcome.failed if number in tables]
        staying = [table for number, table in tables.items() if number not in outcome.failed]
        sink.discard(failed, staged)
        offsets = offsets_digest(read_offsets(self._folder, command.batch))
        plan = self._plans(command.version)
        held = [tables[number].name for number in plan.held & tables.keys()]
        backlogs = {
            tables[number].name: look_at_queue(
                [read_reports(query_queue_folder(self._checkpoint, number), QueueReport)], command.batch
            )
            for number in command.queues.keys() & tables.keys()
        }
        bounds = outcome.bounds(plan.queries)
        return sink.commit(staying, staged, command.batch, offsets, bounds, held, backlogs)

    def _sink(self, df: DataFrame) -> ResultTables:
        if self._tables is None:
            running = running_batch(df.sparkSession)
            assert running is not None, "called outside of a foreachBatch"
            self._tables = ResultTables(running.name.application, self._checkpoint)
        return self._tables


class DroppedTables:
    """Deletes the tables of dropped queries on the driver, each once per process."""

    def __init__(self, options: tuple[tuple[str, str], ...] = ()) -> None:
        self._options = options
        self._done: dict[str, int] = {}

    def delete(self, registry: Registry, host: str) -> None:
        """Delete the tables that a registry marks as deleted; warn about those that cannot be deleted.

        The registry is that of the batch that begins, so no running batch writes to these tables. `host` is the
        streaming query's id.
        """
        for name, version in registry.deleted.items():
            if self._done.get(name) == version:
                continue
            self._done[name] = version
            location = registry.settings.table_of(name)
            try:
                if delete_table(location, name, host, version, self._options):
                    _LOG.info("deleted the table of the query %s, which was dropped: %s", name, location)
            except (UpstreamError, OSError) as error:
                _LOG.warning("the table of the query %s, which was dropped, stays: %s", name, error)


def _figures(summary: CommitSummary) -> tuple[int, float | None]:
    return summary.committed_at_us, None if summary.staleness is None else summary.staleness.p99
