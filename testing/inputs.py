"""A test's rows as rows of an update stream, by the code that reads any streaming DataFrame."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import pickle
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from ..conf.errors import OptionError, SchemaError
from ..conf.options import parse_options
from ..core.feedback.on_demand_watermark import DownstreamReport, DownstreamReports
from ..core.feedback.reports import JoinReport, ReorderReport, StageReport, WindowReport
from ..core.rows.event_times import NO_TIME, TimeFormat, event_time_us
from ..core.rows.exact_integers import LOWEST
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM, TIMESTAMP
from ..core.watermark.bounds import AFTER_ALL
from ..core.watermark.choice import Watermark
from ..datasource.latest_stream import latest_options
from ..datasource.options import SourceOptions
from ..expressions.bind import arrow_schema
from ..operators.ingest.dataframe import Idle, check_types, on_demand_watermark
from ..operators.ingest.plan import ARRIVAL, DELETED, FEED, IntakePlan
from ..operators.ingest.shard import IntakeShard, frames_of
from ..operators.ingest.tick_planner import SilentFeedPlanner
from ..operators.runtime.shard import REASON
from ..operators.state.store import DictStore
from ..plan.fingerprint import Fingerprint
from ..plan.nodes import Given

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


_BEGIN_US = 946_684_800_000_000
"""The clock of the first batch: 2000-01-01 00:00 in UTC."""


@dataclasses.dataclass
class Checkpoint:
    """The state and the last reports of all shards, each by the operator's place and the shard's number."""

    batch: int = 0  # the number of batches so far
    clock_us: int = _BEGIN_US - 1_000_000  # when the last batch began
    # the content of Spark's state store
    states: dict[tuple[str, int], dict[tuple[str, int], bytes]] = dataclasses.field(default_factory=dict)
    reports: dict[str, dict[int, Any]] = dataclasses.field(default_factory=dict)
    ticks: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)  # the offset of the last tick, by place
    tables: dict[str, pa.Table] = dataclasses.field(default_factory=dict)  # the present tables that the steps join
    operators: Fingerprint | None = None  # of the plan that ran last; None before the first batch

    def store(self, place: str, shard: int) -> DictStore:
        """Return a shard's state; values put into it are stored here."""
        store = DictStore()
        store.values = self.states.setdefault((place, shard), {})
        return store

    def said(self, place: str) -> list[Any]:
        """Return the last reports of the shards of a place."""
        return list(self.reports.get(place, {}).values())

    def copy(self) -> Checkpoint:
        """Return a copy, so that a failed batch leaves this checkpoint unchanged."""
        return dataclasses.replace(
            self,
            states={name: dict(values) for name, values in self.states.items()},
            reports={place: dict(each) for place, each in self.reports.items()},
            ticks=dict(self.ticks),
            tables=dict(self.tables),
        )

    def as_another_process(self) -> Checkpoint:
        """Return the checkpoint as another process reads it."""
        return pickle.loads(pickle.dumps(self))  # noqa: S301 written on this very line


Rows = Sequence[Mapping[str, Any]] | pa.Table
Moment = dt.datetime | dt.date | float | str


class Taken(NamedTuple):
    """The rows of an input in a batch."""

    rows: pa.Table  # with the system column, and punctuation
    malformed: pa.Table | None = None  # rows without a key or a readable time, with the reason; None without such rows


class Input:
    """One input of the steps, with the parameters and errors of :func:`upstream.read`.

    `idle` and `ets_delay` are those of :meth:`upstream.UpdateStream.from_dataframe`.
    """

    def __init__(
        self,
        name: str,
        schema: str | StructType | pa.Schema,
        key: Key,
        time: str | None,
        time_format: str | None,
        watermark: Watermark | None,
        idle: Idle = "wait",
        ets_delay: str | None = None,
    ) -> None:
        asked = {} if watermark is None else watermark.options()
        asked |= {**latest_options(key, time), "coalesce": "false"}
        (options,) = parse_options(asked, [SourceOptions])
        policy = options.policy()
        self.plan = IntakePlan(
            name=name,
            key=key,
            time=time,
            time_format=time_format,
            time_zone="UTC",
            policy=policy,
            fail=False,
            shards=1,
            schema=_arrow(schema),
            on_demand=on_demand_watermark(policy, idle, ets_delay),
        )
        wanted = [*key, *([] if time is None or self.plan.stamped else [time])]
        absent = [each for each in wanted if each not in self.plan.schema.names]
        if absent:
            raise SchemaError(
                f"the schema has no column {', '.join(absent)}",
                expected="the key and the event time among " + ", ".join(self.plan.schema.names),
            )
        check_types(self.plan)
        self.tables: dict[str, pa.Schema] = {}
        """The columns of tables that the steps may join, by the path in the steps."""

    @property
    def node(self) -> Given:
        """The input as the first step of a plan."""
        plan = self.plan
        return Given(
            plan.key, plan.time, from_arrow_schema(plan.leaving), name=plan.name, promises=plan.promises,
            tables=self.tables, given=TimeFormat(plan.time_format, plan.time_zone),
        )  # fmt: skip

    @property
    def place(self) -> str:
        """The key of its state in the checkpoint."""
        return f"input {self.plan.name}"

    def nothing(self) -> pa.Table:
        """Return no rows."""
        return self.plan.leaving.empty_table()

    def take(self, rows: Rows, feed: str, punctuation: Moment | None, checkpoint: Checkpoint) -> Taken:
        """Return a batch's rows of one feed, followed by the feed's punctuation.

        A punctuation that is not a time of this input raises an OptionError, rows that do not fit the schema a
        SchemaError.
        """
        promises = self._promised(checkpoint)
        if punctuation is not None:
            promises[feed] = max(self._bound(punctuation), promises.get(feed, LOWEST))
        return self._run(self._table(rows, feed, checkpoint.clock_us), promises, checkpoint)

    def tick(self, checkpoint: Checkpoint) -> Taken | None:
        """Return the punctuation that the clock implies for silent feeds, for a batch without rows here; else None."""
        promises = self._promised(checkpoint)
        return self._run(self._table([], "", checkpoint.clock_us), promises, checkpoint) if promises else None

    def end(self, checkpoint: Checkpoint) -> Taken:
        """Return the punctuation that ends each feed."""
        feeds = [] if self.plan.policy.name == "none" else [each.feed for each in checkpoint.said(self.place)]
        return self._run(self._table([], "", checkpoint.clock_us), dict.fromkeys(feeds, AFTER_ALL), checkpoint)

    def _promised(self, checkpoint: Checkpoint) -> dict[str, int]:
        """Return the bounds of silent feeds in this batch, as the source of ticks beside a DataFrame plans them."""
        plan = self.plan
        if plan.on_demand is None:
            return {}
        downstream = DownstreamReports(lambda: _waiting(checkpoint))
        reports = lambda: checkpoint.said(self.place)  # noqa: E731
        planner = SilentFeedPlanner((0,), reports, downstream, plan.policy, plan.on_demand)
        start = checkpoint.ticks.get(self.place) or planner.initial()
        tick = planner.plan(start, checkpoint.clock_us)
        if tick == start:
            return {}
        checkpoint.ticks[self.place] = tick
        return dict(tick["promises"])

    def _run(self, table: pa.Table, promises: dict[str, int], checkpoint: Checkpoint) -> Taken:
        shard = IntakeShard(0, self.plan, checkpoint.store(self.place, 0))
        packed = frames_of(table, [0], (0, 0), every_shard=True, clock_us=checkpoint.clock_us)
        frames = [frame for frame in packed.column("frame").to_pylist() if frame is not None]
        rows, report = shard.run(frames, batch_id=checkpoint.batch, control=json.dumps({"promises": promises}))
        checkpoint.reports[self.place] = dict(enumerate(report.feeds))
        malformed = shard.malformed
        if malformed is not None:
            malformed = malformed.rename_columns(
                ["reason" if name == REASON else name for name in malformed.column_names]
            )
        return Taken(self.nothing() if rows is None else rows, malformed)

    def _table(self, rows: Rows, feed: str, clock_us: int) -> pa.Table:
        own = self.plan.schema
        try:
            table, deleted = _of_table(rows, own) if isinstance(rows, pa.Table) else _of_dicts(rows, own)
        except (pa.ArrowException, TypeError, ValueError, AttributeError, KeyError) as error:
            if isinstance(error, SchemaError):
                raise
            raise SchemaError(f"the rows do not fit the schema: {error}", expected=str(own)) from error
        arrival = pa.array([clock_us], pa.int64()).cast(TIMESTAMP)[0]
        table = table.append_column(FEED, pa.repeat(pa.scalar(feed), table.num_rows))
        table = table.append_column(ARRIVAL, pa.repeat(arrival, table.num_rows))
        return table.append_column(DELETED, pa.array(deleted, pa.bool_()))

    def _bound(self, punctuation: Moment) -> int:
        plan = self.plan
        if plan.time is None:
            raise OptionError(
                f"punctuation={punctuation!r} without an event time", expected="event_time=…, the column of its time"
            )
        try:
            column = pa.chunked_array([pa.array([punctuation])])
        except (pa.ArrowException, TypeError) as error:
            raise OptionError(f"punctuation={punctuation!r}", expected="a time, such as a datetime") from error
        timed = pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)
        (bound,) = event_time_us(column, None if timed else plan.time_format, plan.time_zone).tolist()
        if bound == NO_TIME:
            raise OptionError(f"punctuation={punctuation!r}", expected="a time, such as a datetime")
        return bound


def _waiting(checkpoint: Checkpoint) -> list[DownstreamReport]:
    """Return the last reports of the operators that wait for feeds."""
    reports = [report for shards in checkpoint.reports.values() for report in shards.values()]
    return [each for each in reports if isinstance(each, WindowReport | JoinReport | ReorderReport | StageReport)]


def _of_table(rows: Any, schema: pa.Schema) -> tuple[pa.Table, list[bool]]:
    _check_names(rows.column_names, schema)
    return rows.select(schema.names).cast(schema), [False] * rows.num_rows


def _of_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> tuple[pa.Table, list[bool]]:
    _check_names(list(dict.fromkeys(name for row in rows for name in row if name != SYSTEM)), schema)
    deleted = [bool((row.get(SYSTEM) or {}).get("deleted")) for row in rows]
    own = [{name: row.get(name) for name in schema.names} for row in rows]
    return pa.Table.from_pylist(own, schema=schema), deleted


def _check_names(names: Sequence[str], schema: pa.Schema) -> None:
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise SchemaError(
            f"the rows have {', '.join(unknown)}, which the schema lacks",
            expected="columns among " + ", ".join(schema.names),
        )


def _arrow(schema: str | StructType | pa.Schema) -> pa.Schema:
    if isinstance(schema, str):
        return arrow_schema(schema)
    return schema if isinstance(schema, pa.Schema) else to_arrow_schema(schema, timezone="UTC")
