"""The fluent update stream: steps on rows that have an update key, ending in a DataFrame."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from copy import copy
from typing import TYPE_CHECKING, Literal, cast

from ..conf.errors import OptionError, SchemaError
from ..conf.options import quoted
from ..conf.session import make_known
from ..conf.units import parse_duration_us
from ..frames.at_source import at_source
from ..frames.buckets import integers_with_hash
from ..frames.reports import reports_folder
from ..frames.source_steps import ArrowStep
from ..frames.system import SYSTEM
from .budget import check_budget
from .queue.queue import ONE_PER_KEY, Policy, check_policy
from .shards.window_plan import check_method
from .steps import chained, map_in_arrow, mapped
from .windowed import Incomplete, WindowedStream, check_complete, lateness_us
from .windows.emission import Emit, check_emit
from .windows.parse import landmark_by_rows, landmark_by_time, slide_by_tuple, window_by_rows, window_by_time

if TYPE_CHECKING:
    import datetime as dt

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

__all__ = ["UpdateStream"]

_FIRST_BUDGET = 2_000
_PASSES = "__upstream_passes"


class UpdateStream:
    """Rows that update a key.

    Parameters
    ----------
    df : pyspark.sql.DataFrame
        Streaming, with the system column ``_upstream``, as ``spark.readStream.format("upstream")`` gives it.
    key : str or sequence of str
        The update key's column or columns.
    time : str, optional
        The column that says which of two rows of a key is newer: a timestamp, a date or a number. Without it, arrival does.

    Raises
    ------
    SchemaError
        A column is missing.

    Notes
    -----
    Each step gives a new stream; nothing runs until it is written, by :func:`~upstream.sink.latest.write_latest` or as the DataFrame
    :attr:`df`. Punctuation and tombstones pass every step.
    """

    def __init__(self, df: DataFrame, *, key: str | Sequence[str], time: str | None = None) -> None:
        self.key = (key,) if isinstance(key, str) else tuple(key)
        self.time = time
        self._base = df
        # Steps on Arrow batches that one Python worker runs one after the other, and the schema after them.
        self._steps: tuple[ArrowStep, ...] = ()
        self._schema: StructType = df.schema
        self._shards: int | None = None
        self._windows = 0
        self._incomplete: Incomplete | None = None
        absent = [name for name in (*self.key, *([time] if time else []), SYSTEM) if name not in df.columns]
        if absent:
            raise SchemaError(
                f"the stream has no column {', '.join(absent)}",
                expected=f"the key, the time and {SYSTEM}, as the source made it",
                hint="name columns that are there: " + ", ".join(df.columns),
            )

    @property
    def df(self) -> DataFrame:
        """The stream as a DataFrame, with the system column."""
        return map_in_arrow(self._base, chained(self._steps), self._schema) if self._steps else self._base

    @property
    def schema(self) -> StructType:
        """The columns of :attr:`df`."""
        return self._schema

    @property
    def windows(self) -> int:
        """How many window operators the stream has come through."""
        return self._windows

    @property
    def shards(self) -> int | None:
        """Into how many parts, each in one task, the keys are divided (``pmod(hash(key), shards)``); None if they are not."""
        return self._shards

    def where(self, condition: str | Column, *, on_leave: Literal["keep", "delete"] = "keep") -> UpdateStream:
        """Let only those rows on that satisfy a condition.

        Parameters
        ----------
        condition
            SQL, or a column. Where it is null the row fails, as in Spark. Punctuation rows and tombstones pass, whatever it says of them.
        on_leave
            What it means that a key's row fails. ``keep``: the row is dropped, the key's earlier result stays (tr620 §3.2).
            ``delete``: the row goes on as a tombstone, which takes the key out of the table: its newest row decides.

        Raises
        ------
        OptionError
            `on_leave` is another word.

        Notes
        -----
        A tombstone has its key, its time and the system column; all else in it is null. It is an update as any other: a newer row
        revives the key, an older one does not.
        """
        from pyspark.sql import functions as F

        if on_leave not in ("keep", "delete"):
            raise OptionError(
                f"on_leave={on_leave!r}",
                expected="'keep' or 'delete'",
                hint="keep drops the row and lets the earlier result stay, delete takes the key out of the table",
            )
        chosen = F.expr(condition) if isinstance(condition, str) else condition
        marks = [F.coalesce(F.col(f"{SYSTEM}.{mark}"), F.lit(False)) for mark in ("punctuation", "deleted")]
        passes = marks[0] | marks[1] | F.coalesce(chosen, F.lit(False))
        df, fixed, stays = self.df, self._fixed(), F.col(_PASSES)
        if on_leave == "keep":
            return self._with(df.where(passes))
        marked = F.col(SYSTEM).withField("deleted", F.lit(True))

        def leaving(name: str) -> Column:
            """With its values a tombstone would go on into computations that the condition was to guard."""
            column = F.col(quoted(name))
            if name in fixed and name != SYSTEM:
                return column
            return F.when(stays, column).otherwise(marked if name == SYSTEM else F.lit(None)).alias(name)

        # The outcome is a column of its own first: computed once, whatever it costs and however random it is.
        deleting = self._with(df.withColumn(_PASSES, passes).select(*[leaving(name) for name in df.columns]))
        deleting._incomplete = (
            'where(…, on_leave="delete") makes tombstones of rows, which have no values',
            'filter with on_leave="keep" before a window',
        )
        return deleting

    filter = where

    def select(self, *columns: str | Column) -> UpdateStream:
        """Keep or compute columns. The key, the time and the system column stay as they are, named or not.

        Raises
        ------
        SchemaError
            A column would take the place of the key or the time.
        """
        from pyspark.sql import functions as F

        fixed = self._fixed()
        own = [
            F.col(each) if isinstance(each, str) else each
            for each in columns
            if not (isinstance(each, str) and each in fixed)
        ]
        probe = self.df.select(*own) if own else self.df.select(*[])
        clash = [name for name in probe.columns if name in fixed]
        if clash:
            raise SchemaError(
                f"{', '.join(clash)} would be computed anew, and is the stream's key, time or system column",
                expected="new columns under other names: the key and the time of a row do not change",
                hint="rename the column, or begin a new stream with UpdateStream(df, key=…, time=…)",
            )
        kept = [F.col(quoted(name)) for name in fixed if name != SYSTEM]
        return self._with(self.df.select(*kept, *own, F.col(SYSTEM)))

    project = select

    def map(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
        schema: StructType | str,
        *,
        batch_rows: int = 1000,
    ) -> UpdateStream:
        """Compute columns by a Python function over Arrow batches: a model, a look-up.

        Parameters
        ----------
        function
            Takes a batch of rows without punctuation, tombstones and the system column, returns as many rows in the same order, with
            the columns of `schema`.
        schema
            Of the new columns, in Spark's terms. The key and the time are kept as they were, and may not be in it.
        batch_rows
            Most rows that `function` sees at once.

        Raises
        ------
        SchemaError
            `schema` names the key or the time; or, when the query runs, the function returns other columns or another number of rows.
        """
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import StructField, StructType

        fixed = self._fixed()
        new = cast("StructType", StructType.fromDDL(schema)) if isinstance(schema, str) else schema
        clash = [field.name for field in new if field.name in fixed]
        if clash:
            raise SchemaError(
                f"the map would give {', '.join(clash)}, which is the stream's key, time or system column",
                expected="new columns only: a map may not change what a row updates, or when",
                hint="leave it out of the schema; it is kept as it is",
            )
        kept = [field for field in self._schema if field.name in fixed and field.name != SYSTEM]
        # Whatever the schema says of nulls: punctuation has nothing in new columns.
        computed = [StructField(field.name, field.dataType, nullable=True, metadata=field.metadata) for field in new]
        whole = StructType([*kept, *computed, self._schema[SYSTEM]])
        arrow = to_arrow_schema(whole, timezone="UTC")
        return self._then(mapped(function, arrow, [field.name for field in new], batch_rows), whole)

    def queue(
        self,
        *,
        checkpoint_location: str | os.PathLike[str],
        policy: Policy = "auto",
        budget: int | Literal["auto"] | None = "auto",
        batch_duration: str | None = None,
        shards: int = 16,
        weight: str | Column | None = None,
        access_interval: str | Column | None = None,
        cost: str | None = None,
        half_life: str = "60 seconds",
        seed: int = 0,
        most_stale: int = 0,
    ) -> UpdateStream:
        """Let rows beyond a batch's budget wait, newer ones superseding older ones of their key (tr620 §4-5).

        Parameters
        ----------
        checkpoint_location
            The query's, as it is given to the sink: the shards report below it.
        policy
            ``append``, ``shed``, ``fifo``, ``in-place``, ``linecutting``, or ``auto``: every row while the load allows, else linecutting.
        budget
            Rows that a batch may process, ``auto`` for what gives the least staleness (or takes `batch_duration`), None for all.
        batch_duration
            How long a batch is to take, such as ``2 seconds``; for ``budget="auto"``.
        shards
            Into how many parts the keys are divided; fixed for the life of a checkpoint. As many as the table's buckets is best.
        weight
            A column or SQL expression: how many times a key's staleness counts.
        access_interval
            A duration (``10 seconds``), or a column or SQL expression of seconds: no key gives two results within it.
        cost
            Seconds (``0.5 ms``) to process one row, pinned; measured unless given.
        half_life
            Of the update rates that linecutting decides by.
        seed
            Of the policy ``shed``.
        most_stale
            How many of the keys that wait longest each batch reports, for :func:`upstream.most_stale`.

        Raises
        ------
        OptionError
            The policy is unknown, or a number makes no sense.

        Notes
        -----
        Guarantee: what waits is in Spark's state and survives any crash; each batch is a function of its journaled offsets.
        """
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import to_arrow_schema

        from .shards.arrivals import INTERVAL, WEIGHT
        from .shards.messages import ShardPlan
        from .shards.pack import PACKED_DDL, pack, unpack
        from .shards.processor import QueueProcessor
        from .shards.ticks import TickSource

        check_policy(policy)
        check_budget(budget)
        if shards < 1:
            raise OptionError(f"shards={shards}", expected="at least 1")
        if most_stale < 0:
            raise OptionError(f"most_stale={most_stale}", expected="how many keys to report; 0 for none")
        auto = budget == "auto"
        first = _FIRST_BUDGET if auto else budget
        plan = ShardPlan(
            key=self.key,
            time=self.time,
            shards=shards,
            policy=policy,
            budget=first if isinstance(first, int) else None,
            auto=auto,
            half_life_s=_seconds("half_life", half_life),
            cost_s=None if cost is None else _seconds("cost", cost),
            seed=seed,
            most_stale=most_stale,
        )
        folder = reports_folder(os.fspath(checkpoint_location))
        df, extra = self.df, []
        if weight is not None:
            value = F.expr(weight) if isinstance(weight, str) else weight
            df, extra = df.withColumn(WEIGHT, F.coalesce(value.cast("double"), F.lit(1.0))), [WEIGHT]
        if access_interval is not None:
            df, extra = df.withColumn(INTERVAL, _interval_us(access_interval)), [*extra, INTERVAL]
        session = df.sparkSession
        make_known(session)
        session.dataSource.register(TickSource)
        coalesce = policy in ONE_PER_KEY and not extra
        slots = integers_with_hash(range(shards))
        packed = map_in_arrow(df, pack(self.key, slots, self.time, coalesce), PACKED_DDL)
        options = {
            "feedback": folder,
            "slots": ",".join(str(slot) for slot in slots),
            "auto": str(auto).lower(),
            **({} if plan.budget is None else {"budget": str(plan.budget)}),
            **({} if batch_duration is None else {"duration": str(_seconds("batch_duration", batch_duration))}),
            **({} if plan.cost_s is None else {"cost": str(plan.cost_s)}),
        }
        ticks = session.readStream.format("upstream_ticks").options(**options).load()
        served = (
            packed.union(ticks)
            .groupBy("slot")
            .transformWithState(QueueProcessor(plan, slots, folder), "frame BINARY", "append", "none")
        )
        queued = copy(self)
        queued._base, queued._steps, queued._shards = served, (), shards
        if policy != "append":
            queued._incomplete = (
                f"queue(policy={policy!r}) leaves rows out, superseded ones mostly (covered > 1 says so)",
                'put the window before the queue, or give the queue policy="append"',
            )
        return queued._then(unpack(to_arrow_schema(self._schema, timezone="UTC"), extra, folder), self._schema)

    def window(
        self,
        range: str,  # noqa: A002 the papers' word
        slide: str | None = None,
        *,
        checkpoint_location: str | os.PathLike[str],
        emit: Emit = "lazy",
        method: Literal["auto", "wid", "paned", "adaptive", "buffering"] = "auto",
        allowed_lateness: str = "0 seconds",
        late_location: str | os.PathLike[str] | None = None,
        origin: str | dt.datetime | dt.date | None = None,
        zone: str | None = None,
        time_format: str | None = None,
        time_zone: str = "UTC",
        shards: int = 16,
    ) -> WindowedStream:
        """Windows of each key on the stream's time, to be aggregated by :meth:`~upstream.operators.windowed.WindowedStream.agg`.

        Parameters
        ----------
        range
            RANGE, how long a window is: ``10 minutes``; with `zone` also ``1 day``, ``1 month``. ``all`` for everything so far, every
            `slide` (landmark windows). ``100 rows`` for the last rows of each key, in the order of arrival: such windows close with their
            last row, and `window_start` and `window_end` are row numbers, counted from 0 for each key.
        slide
            SLIDE, how far they are apart [default: `range`, windows that tumble]. ``1 row`` for a window by time that ends
            with each row.
        checkpoint_location
            The query's, as it is given to the sink: the shards report below it.
        emit
            ``lazy``: of each key the latest window that is complete (tr620 §6.2.1). ``all``: every window that has a row. ``eager``:
            commit to each key's latest started window and pass over all others until it closes (§6.2.2). ``early``: lazy, and before it what the open window holds by now, with ``final = false``; ``all+early`` likewise.
        method
            How windows are computed, at the same results: ``paned`` (thesis §6.2), ``wid`` (§6.1), ``adaptive`` (§6.3: keys with few rows
            keep them, others partial aggregates, whichever is smaller), ``buffering`` (whole rows, the baseline). ``auto`` is ``adaptive``
            where even the state of no rows is much larger than a row, else ``paned``: see `docs/windows.md`.
        allowed_lateness
            How long after a window closed rows for it still count, and its result is given again.
        late_location
            A folder for rows that came later than that, as Parquet files; without it they are counted only.
        origin, zone
            From where windows are counted, and whose calendar they follow: see :func:`~upstream.operators.windows.parse.window_by_time`.
        time_format, time_zone
            How the stream's time is read, as the source's options of these names.
        shards
            Into how many parts the keys are divided; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Raises
        ------
        OptionError
            Saying which of these is wrong, and what to write.
        SchemaError
            The stream does not have every row once: it comes from a queue, from deletions, or from windows that are given again.
        """
        check_emit(emit)
        check_method(method)
        check_complete(self._incomplete)
        rows = "row" in str(range)  # whatever it is: the parsers refuse what is no text
        if self.time is None and not rows:
            raise OptionError(
                "windows by time on a stream without a time",
                expected="UpdateStream(df, key=…, time=…)",
                hint="name the time column",
            )
        if shards < 1:
            raise OptionError(f"shards={shards}", expected="at least 1")
        if rows:
            windows = window_by_rows(range, slide, partitioned=True)
        elif str(range).strip().lower() == "all" and "row" in str(slide):
            rows, windows = True, landmark_by_rows(str(slide), partitioned=True)
        elif str(range).strip().lower() == "all":
            if slide is None:
                raise OptionError(
                    "range='all' without a slide", expected="slide='1 hour', or how often a result is wanted"
                )
            windows = landmark_by_time(slide, origin=origin, zone=zone)
        elif "row" in str(slide):
            windows = slide_by_tuple(range, str(slide), order="time")
        else:
            windows = window_by_time(range, slide, origin=origin, zone=zone)
        return WindowedStream(
            self,
            {
                "windows": windows,
                "time": not rows,
                "checkpoint_location": checkpoint_location,
                "emit": emit,
                "method": method,
                "lateness_us": lateness_us(allowed_lateness),
                "late_location": late_location,
                "time_format": time_format,
                "time_zone": time_zone,
                "shards": shards,
            },
        )

    def after_window(
        self, frames: DataFrame, unpack: ArrowStep, schema: StructType, shards: int, incomplete: Incomplete | None
    ) -> UpdateStream:
        """The stream of a window operator's results; called by the windows, not by users."""
        stream = copy(self)
        stream.time = "window_end"
        stream._base, stream._steps, stream._schema = frames, (unpack,), schema
        stream._shards, stream._windows, stream._incomplete = shards, self._windows + 1, incomplete
        return stream

    def in_arrow(self, step: ArrowStep, schema: StructType) -> DataFrame | None:
        """A step's result where rows are in Arrow before it; None where Spark holds them in its own form. Called by the sink."""
        if self._steps:
            return map_in_arrow(self._base, chained((*self._steps, step)), schema)
        return at_source(self._base, step, schema)

    def _fixed(self) -> list[str]:
        time = [self.time] if self.time is not None and self.time not in self.key else []
        return [*self.key, *time, SYSTEM]

    def _with(self, df: DataFrame) -> UpdateStream:
        """The same keys in the same tasks, other rows or columns."""
        stream = copy(self)
        stream._base, stream._steps, stream._schema = df, (), df.schema
        return stream

    def _then(self, step: ArrowStep, schema: StructType) -> UpdateStream:
        stream = copy(self)
        stream._steps, stream._schema = (*self._steps, step), schema
        return stream


def _seconds(name: str, value: str) -> float:
    try:
        return parse_duration_us(value) / 1e6
    except ValueError:
        raise OptionError(f"{name}={value!r}", expected="a duration such as '10 seconds' or '0.5 ms'") from None


def _interval_us(value: str | Column) -> Column:
    """Microseconds, none where the expression is null or negative."""
    from pyspark.sql import functions as F

    if isinstance(value, str):
        try:
            return F.lit(parse_duration_us(value)).cast("bigint")
        except ValueError:
            value = F.expr(value)
    micros = F.round(value.cast("double") * 1e6).cast("bigint")
    return F.greatest(F.coalesce(micros, F.lit(0)), F.lit(0))
