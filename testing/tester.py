"""The tester of a stream's steps or of a query: rows and punctuation in, results out."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema

from ..api.stream import UpdateStream
from ..conf.errors import CheckpointError, OptionError, SchemaError
from ..conf.options import text_argument
from ..core.rows.event_times import event_time_us
from ..core.rows.frames import split_punctuation
from ..core.rows.key import Key
from ..core.rows.newest import key_codes, newest_per_key
from ..core.rows.sort_keys import in_order, ordered
from ..core.rows.system_column import SYSTEM, deleted_mask, system_field
from ..core.watermark.bounds import bounds_in, is_finite
from ..core.watermark.choice import Watermark
from ..expressions.bind import arrow_schema
from ..operators.ingest.dataframe import Idle
from ..operators.runtime.feeds import FeedBounds, key_mask
from ..operators.tables.lookup import in_spark_types
from ..plan.nodes import Given, walk
from .dry_run import DryRun, QueryRun
from .expressions import ComputedColumn, RowEvaluation
from .inputs import Checkpoint, Input, Moment, Rows, Taken

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..plan.nodes import Node, RowStep

    Schema = str | StructType | pa.Schema


class GivenStream(UpdateStream):
    """An update stream whose steps need no session: this class computes what Spark would."""

    def write(self, *args: object, **options: object) -> NoReturn:
        """Refuse to write: a tested stream has no table."""
        del args, options
        raise OptionError(
            "write(…) inside the steps that are tested",
            expected="what the job has between read and write",
            hint="return the stream; tester.latest() gives what the table would hold",
        )

    def _bound(self, plan: Node, checkpoint: str | None) -> NoReturn:
        """Refuse to bind: a tested stream has no DataFrame."""
        del plan, checkpoint
        raise OptionError(
            "a tested stream has no DataFrame",
            expected="steps of the stream",
            hint="leave what needs the DataFrame out of the function that you give to StreamTester",
        )

    def _table(self, path: str, storage: object) -> tuple[str, pa.Schema]:
        del storage
        tables = next((each.tables for each in walk(self.plan) if isinstance(each, Given)), {})
        if path not in tables:
            raise OptionError(
                f"join_table({path!r}), and the test has no such table",
                expected="a table for each that the steps join: " + (", ".join(tables) or "none is given"),
                hint="give it to the tester: StreamTester(…, tables={path: rows})",
            )
        return path, tables[path]

    def _after(self, step: RowStep) -> StructType:
        return from_arrow_schema(RowEvaluation(step, self.plan.arrow, self.plan.fixed).schema)

    def _check_expression(self, text: str) -> None:
        ComputedColumn(text, self.plan.arrow, "value")

    def _parsed(self, ddl: str) -> StructType:
        return from_arrow_schema(arrow_schema(ddl))


_BATCH_US = 1_000_000


class StreamTester:
    """Run the steps of a stream, or a query, without Spark: no session, no Java, no files.

    Only the source, the shuffle and the table of a query are missing. The page on testing has examples.

    Parameters
    ----------
    steps
        A job's steps between ``read`` and ``write``: a function of streams that returns a stream. Or a query's text.
    schema
        The schema of the rows, such as ``"vehicle_id STRING, timestamp TIMESTAMP, speed DOUBLE"``. If they differ, a
        mapping by the parameter of `steps`; for a query, always a mapping by the stream.
    key, event_time, watermark
        As for :func:`upstream.read`. If they differ, a mapping by the input's name.
    time_format
        The format of an event time that is a number or text, such as ``epoch_ms``.
    idle, ets_delay
        As for :meth:`upstream.UpdateStream.from_dataframe`. With ``ets``, each batch advances the watermarks of silent
        feeds by the tester's clock, of every input.
    tables
        The tables that the steps join, by the path that they give to ``join_table``, each as a pyarrow table or a data
        frame of Polars. :meth:`change_table` gives one another version.
    lateness
        As for :meth:`upstream.Queries.create`.

    Raises
    ------
    OptionError
        An argument is wrong, or a step needs Spark.
    QueryRefusedError
        A job would refuse the query.
    SchemaError
        A column does not exist, or has a type that a step cannot take.

    Notes
    -----
    Within a batch, rows of one key have the order that a query gives them. The order of different keys
    means nothing.

    Steps get SQL as text: ``where("speed > 0")``, ``select("speed * 3.6 AS kmh")``. They have the
    functions of queries but no aggregates; others, and column objects of PySpark's, are refused.

    Examples
    --------
    >>> from datetime import datetime, timezone
    >>> import upstream as us
    >>> from upstream.testing import StreamTester
    >>> def counts(stream):
    ...     return stream.where("speed > 0").window("10 minutes").agg(n=us.aggregates.count())
    >>> tester = StreamTester(
    ...     counts, "vehicle STRING, at TIMESTAMP, speed DOUBLE", key="vehicle", event_time="at",
    ...     watermark=us.Watermark.bounded("5 minutes"),
    ... )
    >>> at = lambda minute: datetime(2024, 1, 1, 12, minute, tzinfo=timezone.utc)
    >>> tester.batch([{"vehicle": "a", "at": at(1), "speed": 3.0}, {"vehicle": "a", "at": at(2), "speed": 0.0}])
    []
    >>> [(row["window_end"].minute, row["n"]) for row in tester.batch(punctuation=at(10))]
    [(10, 1)]

    >>> text = "SELECT vehicle, COUNT(*) AS n FROM buses [RANGE 10 MINUTES] GROUP BY vehicle"
    >>> tester = StreamTester(text, {"buses": "vehicle STRING, at TIMESTAMP"}, key="vehicle", event_time="at")
    >>> tester.batch([{"vehicle": "a", "at": at(1)}, {"vehicle": "a", "at": at(2)}], punctuation=at(5))
    [{'vehicle': 'a', 'n': 2}]
    """

    def __init__(
        self,
        steps: Callable[..., UpdateStream] | str,
        schema: Schema | Mapping[str, Schema],
        *,
        key: str | Sequence[str] | Mapping[str, str | Sequence[str]],
        event_time: str | Mapping[str, str] | None = None,
        watermark: Watermark | Mapping[str, Watermark] | None = None,
        time_format: str | None = None,
        idle: Idle = "wait",
        ets_delay: str | None = None,
        tables: Mapping[str, Any] | None = None,
        lateness: str | None = None,
    ) -> None:
        schemas = schema if isinstance(schema, Mapping) else dict.fromkeys(_parameters(steps), schema)
        _check_inputs(list(schemas), steps)
        if tables if isinstance(steps, str) else lateness:
            raise OptionError(
                "a query with tables, or steps with lateness", expected="tables for steps alone, lateness for a query"
            )
        self._steps, self._lateness = steps, lateness
        self._inputs = {
            name: Input(
                name, each, Key.given(_of("key", key, name)),
                text_argument("event_time", _of("event_time", event_time, name)),
                time_format, _of("watermark", watermark, name), idle, ets_delay,
            )
            for name, each in schemas.items()
        }  # fmt: skip
        self._checkpoint = Checkpoint()
        self._bounds = FeedBounds()
        self._watermark: int | None = None
        for path, rows in (tables or {}).items():
            self.change_table(path, rows)
        self._stream, self._run = self._built(steps)
        self._left: list[pa.Table] = []
        self._late: list[pa.Table] = []
        self._malformed: list[pa.Table] = []

    def batch(
        self,
        rows: Rows = (),
        *,
        into: str | None = None,
        feed: str = "rows",
        punctuation: Moment | None = None,
        at: dt.datetime | None = None,
    ) -> list[dict[str, Any]]:
        """Run one micro-batch.

        Parameters
        ----------
        rows
            What arrives, as dictionaries or a pyarrow table. A time without a zone is in UTC, and a column that is not
            named is null. A row with ``"_upstream": {"deleted": True}`` deletes its key.
        into
            Which input they are of, by the name of a parameter of `steps` or of a stream; the first unless given.
        feed
            Which input partition they come from: each has a watermark of its own, and the least of them counts.
        punctuation
            The feed's punctuation after these rows: none below this time comes any more.
        at
            The clock as the batch begins: when the rows arrive. A second after the last batch unless given.

        Returns
        -------
        list of dict
            The rows that leave the last step, with times in UTC. A tombstone has ``"_upstream": {"deleted": True}``.

        Raises
        ------
        OptionError
            There is no such input, or the punctuation is not a time.
        SchemaError
            The rows do not fit.
        UpstreamError
            A step fails, as the query would. The state is then that before the batch.
        """
        name = _parameters(self._steps, self._inputs)[0] if into is None else into
        if name not in self._inputs:
            raise OptionError(f"into={into!r}", expected="an input: " + ", ".join(self._inputs))
        at_us = None if at is None else _micros(at)
        found = self._batch(at_us, lambda after: {name: self._inputs[name].take(rows, feed, punctuation, after)})
        return found + self._remaining() if isinstance(self._run, QueryRun) else found

    def change_table(self, path: str, rows: Any) -> None:
        """Change a table that the steps join: the next batch reads it as it is then.

        Parameters
        ----------
        path
            As the steps call it.
        rows
            The whole table, as a pyarrow table or a data frame of Polars.

        Raises
        ------
        SchemaError
            `rows` is not a table, or lacks a column that it had.
        """
        table = rows.to_arrow() if hasattr(rows, "to_arrow") else rows
        if not isinstance(table, pa.Table):
            raise SchemaError(
                f"the table {path!r} is given as {type(rows).__name__}", expected="a pyarrow table, or a Polars frame"
            )
        schema = in_spark_types(table.schema)
        before = self._checkpoint.tables.get(path)
        absent = [] if before is None else [name for name in before.column_names if name not in schema.names]
        if absent:
            raise SchemaError(
                f"the table {path!r} has no column {', '.join(absent)} any more", expected="the columns that it had"
            )
        self._checkpoint.tables[path] = table.cast(schema)
        for each in self._inputs.values():
            each.tables[path] = schema

    def end(self) -> list[dict[str, Any]]:
        """End all feeds: open windows close, held rows leave, and batches follow until nothing waits in a queue.

        Returns
        -------
        list of dict
            The rows that :meth:`batch` returns, for all these batches.
        """
        found = self._batch(None, lambda after: {name: each.end(after) for name, each in self._inputs.items()})
        return found + self._remaining()

    def _remaining(self) -> list[dict[str, Any]]:
        """Run the batches that have work without new rows."""
        found: list[dict[str, Any]] = []
        while (due_us := self._run.due_us(self._checkpoint)) is not None:
            found += self._batch(max(due_us, self._checkpoint.clock_us + _BATCH_US), lambda _: {})
        return found

    def restart(self, steps: Callable[..., UpdateStream] | str | None = None) -> None:
        """Stop the query and start it from its checkpoint, whose state is read from its bytes.

        Parameters
        ----------
        steps
            Other steps than before: what a changed program would do with the checkpoint.

        Raises
        ------
        CheckpointError
            The steps do not fit the checkpoint.
        """
        now = self._steps if steps is None else steps
        if now != self._steps and isinstance(now, str) | isinstance(self._steps, str):
            raise CheckpointError("restart(…) with another query", hint="give it to a new tester: a job restarts it")
        _check_inputs(list(self._inputs), now)
        stream, run = self._built(now)
        checkpoint = self._checkpoint.as_another_process()
        if isinstance(run, DryRun):
            run.check(checkpoint.copy())
        self._steps, self._stream, self._run, self._checkpoint = now, stream, run, checkpoint

    @property
    def watermark(self) -> Any:
        """The low-watermark of all feeds: no row below it comes. The end of a feed does not change it.

        It is a value of the event time's column; None before there is one.
        """
        times = (each.node.time_type for each in self._inputs.values())
        time = next((each for each in times if each is not None), None)
        return None if self._watermark is None or time is None else in_order(self._watermark, time).as_py()

    @property
    def late(self) -> list[dict[str, Any]]:
        """The rows that a window, a merge, an ordered release, a distinct or the query dropped: they came too late."""
        return [row for table in self._late for row in _dicts(table)]

    @property
    def malformed(self) -> list[dict[str, Any]]:
        """The rows that no job could use, without a key or a readable time; each has a ``reason``."""
        return [row for table in self._malformed for row in table.to_pylist()]

    @property
    def table(self) -> pa.Table:
        """All rows that have left the last step, tombstones among them, with the system column.

        ``_upstream.covered`` is the number of updates that a row represents.
        """
        return pa.concat_tables([self._stream.plan.arrow.empty_table(), *self._left])

    def latest(self, *, key: str | Sequence[str] | None = None, event_time: str | None = None) -> list[dict[str, Any]]:
        """Return the newest row of each key, of all rows that have left the last step: what the table would hold.

        Parameters
        ----------
        key, event_time
            Other columns than the stream's, as for :meth:`upstream.UpdateStream.write`.

        Returns
        -------
        list of dict
            In the order of the key; all rows if the query's result is a stream.
        """
        rows = self.table
        keys = self._stream.key if key is None else Key.given(key)
        if not keys:
            return _dicts(rows)
        time = self._stream.event_time if event_time is None else event_time
        absent = [name for name in (*keys, *([time] if time else [])) if name not in rows.column_names]
        if absent:
            raise SchemaError(
                f"the rows have no column {', '.join(absent)}", expected="columns among " + ", ".join(rows.column_names)
            )
        # As the table orders rows: see sink/merge/newest_rows.py. With a time, numbers of rows decide; without one, the
        # batch, and in a batch first the time of arrival.
        seq, arrival = (
            pc.fill_null(system_field(rows, name).cast(pa.int64()), 0).to_numpy() for name in ("seq", "arrival")
        )
        batch = np.repeat(np.arange(len(self._left)), [each.num_rows for each in self._left])
        rows = rows.take(pa.array(np.lexsort((seq, arrival, batch) if time is None else (seq,))))
        codes, size = key_codes([rows.column(name) for name in keys])
        newest = newest_per_key(codes, size, None if time is None else ordered(rows.column(time)))
        rows = rows.take(pa.array(newest))
        rows = rows.filter(pc.invert(deleted_mask(rows)))
        if not any(pa.types.is_nested(rows.schema.field(name).type) for name in keys):
            rows = rows.sort_by([(name, "ascending") for name in keys])
        return _dicts(rows)

    def _built(self, steps: Callable[..., object] | str) -> tuple[UpdateStream, DryRun | QueryRun]:
        streams = {name: GivenStream._of(self._inputs[name].node) for name in _parameters(steps, self._inputs)}
        if isinstance(steps, str):
            run = QueryRun(steps, streams, self._lateness)
            plan = Given(run.key, None, from_arrow_schema(run.schema), name="query", promises=False)
            return GivenStream._of(plan), run
        made = steps(*streams.values())
        if not isinstance(made, UpdateStream):
            raise OptionError(
                f"the steps return {type(made).__name__}",
                expected="a stream",
                hint="return what the last step gives; a window needs its agg(…)",
            )
        return made, DryRun(made.plan)

    def _batch(self, at_us: int | None, taking: Callable[[Checkpoint], Mapping[str, Taken]]) -> list[dict[str, Any]]:
        after = self._checkpoint.copy()
        after.batch += 1
        after.clock_us += _BATCH_US
        if at_us is not None:  # a clock that is set back keeps its time
            after.clock_us = max(self._checkpoint.clock_us, at_us)
        taken = dict(taking(after))
        for name, each in self._inputs.items():
            if name not in taken and (silent := each.tick(after)) is not None:
                taken[name] = silent
        given = {name: taken[name].rows if name in taken else each.nothing() for name, each in self._inputs.items()}
        left = self._run.run(given, after)
        self._checkpoint = after
        self._heard(given)
        self._malformed += [each.malformed for each in taken.values() if each.malformed is not None]
        rows, _ = split_punctuation(left.rows)
        self._late += left.late
        self._left.append(rows)
        return _dicts(rows)

    def _heard(self, given: Mapping[str, pa.Table]) -> None:
        """Update the low-watermarks from the inputs' punctuation, as the operators do."""
        for name, rows in given.items():
            plan = self._inputs[name].plan
            if plan.time is None:
                continue
            _, punctuation = split_punctuation(rows)
            punctuation = punctuation.filter(pa.array(~key_mask(punctuation, plan.key)))
            if punctuation.num_rows:
                feeds = [f"{name}/{feed}" for feed in system_field(punctuation, "source").to_pylist()]
                self._bounds.hear(feeds, bounds_in(punctuation.column(plan.time), ordered).tolist())
        bound = self._bounds.low_watermark
        if is_finite(bound):
            self._watermark = bound


def _of(argument: str, given: Any, name: str) -> Any:
    """Return an argument for an input."""
    if isinstance(given, Mapping) and name not in given:
        raise OptionError(f"{argument}= has no {name!r}", expected="a value for each input", hint=f"add {name!r}")
    return given[name] if isinstance(given, Mapping) else given


def _parameters(steps: Callable[..., object] | str, known: Iterable[str] = ()) -> list[str]:
    """Return the names of the streams that the steps take; for a query, those that are known."""
    if isinstance(steps, str):
        if not known:
            raise OptionError("a query, and a schema without a name", expected='a mapping: {"buses": "k STRING, …"}')
        return list(known)
    taken = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(steps).parameters.values()
    names = [each.name for each in parameters if each.kind in taken and each.default is inspect.Parameter.empty]
    if not names:
        raise OptionError("the steps take no stream", expected="a function of a stream, or of several")
    return names


def _check_inputs(names: Sequence[str], steps: Callable[..., object] | str) -> None:
    """Refuse inputs that are not those of the steps."""
    if set(names) != set(_parameters(steps, names)):
        raise OptionError(
            f"inputs called {', '.join(names)} for steps of {', '.join(_parameters(steps))}",
            expected="the names of the parameters of the steps",
        )


def _dicts(rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows without the system column; a tombstone has it, with ``deleted`` alone."""
    gone = deleted_mask(rows).to_pylist()
    found = rows.drop_columns([SYSTEM]).to_pylist()
    return [{**row, SYSTEM: {"deleted": True}} if mark else row for row, mark in zip(found, gone, strict=True)]


def _micros(at: dt.datetime) -> int:
    return int(event_time_us(pa.chunked_array([pa.array([at])]), None, "UTC")[0])
