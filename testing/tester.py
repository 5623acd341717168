"""The tester of a stream's steps: rows and punctuation in, results out."""

from __future__ import annotations

import datetime as dt
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..api.stream import UpdateStream
from ..conf.errors import OptionError, SchemaError
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
from .dry_run import BatchOutput, DryRun
from .expressions import ComputedColumn, RowEvaluation
from .inputs import Checkpoint, Input, Moment, Rows, Taken

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from ..plan.nodes import Node, RowStep

if TYPE_CHECKING:
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
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(RowEvaluation(step, self.plan.arrow, self.plan.fixed).schema)

    def _check_expression(self, text: str) -> None:
        ComputedColumn(text, self.plan.arrow, "value")

    def _parsed(self, ddl: str) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(arrow_schema(ddl))


_BATCH_US = 1_000_000


class StreamTester:
    """Run the steps of a stream without Spark: no session, no Java, no files.

    Only the source, the shuffle and the table of a query are missing. The page on testing has examples.

    Parameters
    ----------
    steps
        What a job does between ``read`` and ``write``: a function of one stream, or of several, that returns a stream.
    schema
        The schema of the rows, such as ``"vehicle_id STRING, timestamp TIMESTAMP, speed DOUBLE"``. If the inputs of
        `steps` differ, a mapping with a schema for each parameter of `steps`, by its name.
    key, event_time, watermark
        As for :func:`upstream.read`.
    time_format
        The format of an event time that is a number or text, such as ``epoch_ms``.
    idle, ets_delay
        As for :meth:`upstream.UpdateStream.from_dataframe`. With ``ets``, each batch advances the watermarks of silent
        feeds by the tester's clock, of every input.
    tables
        The tables that the steps join, by the path that they give to ``join_table``, each as a pyarrow table or a data
        frame of Polars. :meth:`change_table` gives one another version.

    Raises
    ------
    OptionError
        An argument is wrong, or a step needs Spark.
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
    """

    def __init__(
        self,
        steps: Callable[..., UpdateStream],
        schema: Schema | Mapping[str, Schema],
        *,
        key: str | Sequence[str],
        event_time: str | None = None,
        watermark: Watermark | None = None,
        time_format: str | None = None,
        idle: Idle = "wait",
        ets_delay: str | None = None,
        tables: Mapping[str, Any] | None = None,
    ) -> None:
        keys = Key.given(key)
        time = text_argument("event_time", event_time)
        schemas = schema if isinstance(schema, Mapping) else dict.fromkeys(_parameters(steps), schema)
        _check_inputs(list(schemas), steps)
        self._steps = steps
        self._inputs = {
            name: Input(name, each, keys, time, time_format, watermark, idle, ets_delay)
            for name, each in schemas.items()
        }
        self._checkpoint = Checkpoint()
        self._bounds = FeedBounds()
        self._watermark: int | None = None
        self._time = None if time is None else next(iter(self._inputs.values())).plan.leaving.field(time)
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
            Which input they are of, by the name of a parameter of `steps`; the first unless given.
        feed
            Which input partition they come from: each has a watermark of its own, and the least of them counts.
        punctuation
            The feed's punctuation after these rows: none below this time comes any more.
        at
            The clock as the batch begins: when the rows arrive. A second after the last batch unless given.

        Returns
        -------
        list of dict
            The rows that leave the last step; times are in UTC. A tombstone has ``"_upstream": {"deleted": True}``.

        Raises
        ------
        OptionError
            There is no such input, or the punctuation is not a time.
        SchemaError
            The rows do not fit.
        UpstreamError
            A step fails, as the query would. The state is then that before the batch.
        """
        name = _parameters(self._steps)[0] if into is None else into
        if name not in self._inputs:
            raise OptionError(f"into={into!r}", expected="an input: " + ", ".join(self._inputs))
        return self._batch(at, lambda after: {name: self._inputs[name].take(rows, feed, punctuation, after)})

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
        while (due_us := self._run.due_us(self._checkpoint)) is not None:
            at_us = max(due_us, self._checkpoint.clock_us + _BATCH_US)
            found += self._batch(_moment(at_us), lambda _: {})
        return found

    def restart(self, steps: Callable[..., UpdateStream] | None = None) -> None:
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
        _check_inputs(list(self._inputs), now)
        stream, run = self._built(now)
        checkpoint = self._checkpoint.as_another_process()
        run.check(checkpoint.copy())
        self._steps, self._stream, self._run, self._checkpoint = now, stream, run, checkpoint

    @property
    def watermark(self) -> Any:
        """The low-watermark of all feeds: no row below it comes. The end of a feed does not change it.

        It is a value of the event time's column; None before there is one.
        """
        if self._watermark is None or self._time is None:
            return None
        return in_order(self._watermark, self._time.type).as_py()

    @property
    def late(self) -> list[dict[str, Any]]:
        """The rows that a window, a merge, an ordered release or a distinct dropped, since they came too late."""
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
        return pa.concat_tables([self._empty, *self._left])

    def latest(self, *, key: str | Sequence[str] | None = None, event_time: str | None = None) -> list[dict[str, Any]]:
        """Return the newest row of each key, of all rows that have left the last step: what the table would hold.

        Parameters
        ----------
        key, event_time
            Other columns than the stream's, as for :meth:`upstream.UpdateStream.write`.

        Returns
        -------
        list of dict
            In the order of the key.
        """
        rows = self.table
        keys = self._stream.key if key is None else Key.given(key)
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

    @property
    def _empty(self) -> pa.Table:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self._stream.schema, timezone="UTC").empty_table()

    def _built(self, steps: Callable[..., object]) -> tuple[UpdateStream, DryRun]:
        made = steps(*[GivenStream._of(self._inputs[name].node) for name in _parameters(steps)])
        if not isinstance(made, UpdateStream):
            raise OptionError(
                f"the steps return {type(made).__name__}",
                expected="a stream",
                hint="return what the last step gives; a window needs its agg(…)",
            )
        return made, DryRun(made.plan)

    def _batch(
        self, at: dt.datetime | None, taking: Callable[[Checkpoint], Mapping[str, Taken]]
    ) -> list[dict[str, Any]]:
        after = self._checkpoint.copy()
        after.batch += 1
        after.clock_us += _BATCH_US
        if at is not None:  # a clock that is set back keeps its time
            after.clock_us = max(self._checkpoint.clock_us, _micros(at))
        taken = dict(taking(after))
        for name, each in self._inputs.items():
            if name not in taken and (silent := each.tick(after)) is not None:
                taken[name] = silent
        given = {name: taken[name].rows if name in taken else each.nothing() for name, each in self._inputs.items()}
        left = self._run.run(given, after)
        self._checkpoint = after
        self._heard(given)
        self._malformed += [each.malformed for each in taken.values() if each.malformed is not None]
        return self._taken(left)

    def _taken(self, left: BatchOutput) -> list[dict[str, Any]]:
        rows, _ = split_punctuation(left.rows)
        self._late += left.late
        self._left.append(rows)
        return _dicts(rows)

    def _heard(self, given: Mapping[str, pa.Table]) -> None:
        """Update the low-watermarks from the inputs' punctuation, as the operators do."""
        if self._time is None:
            return
        for name, rows in given.items():
            _, punctuation = split_punctuation(rows)
            punctuation = punctuation.filter(pa.array(~key_mask(punctuation, self._inputs[name].plan.key)))
            if punctuation.num_rows:
                feeds = [f"{name}/{feed}" for feed in system_field(punctuation, "source").to_pylist()]
                self._bounds.hear(feeds, bounds_in(punctuation.column(self._time.name), ordered).tolist())
        bound = self._bounds.low_watermark
        if is_finite(bound):
            self._watermark = bound


def _parameters(steps: Callable[..., object]) -> list[str]:
    """Return the names of the streams that the steps take."""
    taken = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(steps).parameters.values()
    names = [each.name for each in parameters if each.kind in taken and each.default is inspect.Parameter.empty]
    if not names:
        raise OptionError("the steps take no stream", expected="a function of a stream, or of several")
    return names


def _check_inputs(names: Sequence[str], steps: Callable[..., object]) -> None:
    """Refuse inputs that are not those of the steps."""
    if set(names) != set(_parameters(steps)):
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


def _moment(us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(0, dt.timezone.utc) + dt.timedelta(microseconds=us)
