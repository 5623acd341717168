"""The steps of a stream on its rows, alone or together with those of another stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, cast

from ..conf.errors import OptionError
from ..conf.locations import absolute_location
from ..conf.options import flag_argument
from ..core.feedback.control import QueueBudget
from ..core.rows.key import Key
from ..operators.compile import bind, on_spark
from ..operators.group_by import open_groups
from ..operators.queue.queue import Policy, ShardPlan, is_duration
from ..operators.reorder.shard import Late, ReorderPlan
from ..operators.row_steps import (
    check_choice,
    choice_step,
    distinct_by,
    filter_step,
    map_rows,
    queue,
    reorder,
    seconds_argument,
)
from ..operators.runtime.ticks import Flush, flush_rows_each
from ..operators.tables.lookup import columns_of_table
from ..plan.fingerprint import needs_checkpoint
from ..plan.nodes import IncompleteInput, Node, RowStep, Transform
from ..plan.properties import check_columns

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType
    from typing_extensions import Self


class StreamSteps:
    """Rows with an update key, and the steps behind them: part of :class:`~upstream.UpdateStream`."""

    plan: Node

    @classmethod
    def _of(cls, plan: Node) -> Self:
        check_columns(plan)
        made = cls.__new__(cls)
        made.plan = plan
        return made

    @property
    def key(self) -> Key:
        """The update key's columns."""
        return self.plan.key

    @property
    def event_time(self) -> str | None:
        """The column of the event time; None if arrival decides which row is newer."""
        return self.plan.time

    @property
    def schema(self) -> StructType:
        """The columns of the rows, including the system column."""
        return self.plan.schema

    @property
    def session(self) -> SparkSession:
        return self.plan.session

    def where(self, condition: str | Column, *, on_leave: Literal["keep", "delete"] | None = None) -> Self:
        """Keep only the rows that satisfy a condition.

        Parameters
        ----------
        condition
            SQL, or a column. If it is null, the row fails, as in Spark. Punctuation rows and tombstones pass, whatever
            it yields for them.
        on_leave
            If a key's row fails: ``keep`` the key's earlier result [default], or ``delete`` the key by a tombstone.
            After steps that retract results, such as `join_latest`, `group_by` and early joins, it is ``delete``.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            `condition` is not a column and no text, or `on_leave` is another word.
        SchemaError
            `on_leave` is ``keep`` after steps that retract results.

        Notes
        -----
        A tombstone has its key, its time and the system column; all else in it is null.

        Examples
        --------
        >>> moving = stream.where("speed > 0")
        >>> moving = stream.where("speed > 0", on_leave="delete")
        """
        return self._transformed(*filter_step(self.plan, condition, on_leave))

    filter = where

    def select(self, *columns: str | Column) -> Self:
        """Keep or compute columns. The key, the time and the system column stay as they are, named or not.

        Parameters
        ----------
        *columns
            Names of columns, SQL such as ``speed * 3.6 AS kmh``, or columns of Spark.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            One is not a column and no text.
        SchemaError
            A column would take the place of the key or the time.

        Examples
        --------
        >>> from pyspark.sql import functions as F
        >>> stream.select((F.col("speed") * 3.6).alias("kmh")).schema.names
        ['vehicle_id', 'timestamp', 'kmh', '_upstream']
        """
        made = self._transformed(choice_step(columns))
        check_choice(self.plan, made.schema)
        return made

    project = select

    def map(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
        schema: StructType | str,
        *,
        batch_rows: int = 1000,
    ) -> Self:
        """Compute columns by a Python function over Arrow batches: a model, a look-up.

        Parameters
        ----------
        function
            Takes a batch of rows without punctuation, tombstones and the system column, returns as many rows in the
            same order, with the columns of `schema`.
        schema
            The types of the new columns, in Spark's terms. The key and the time are kept as they were, and may not be
            in it.
        batch_rows
            Most rows that `function` sees at once.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            `function` cannot be called, `schema` is none, or `batch_rows` is not a number of rows.
        SchemaError
            `schema` names the key or the time; or, when the query runs, the function returns other columns or another
            number of rows.

        Examples
        --------
        >>> def score(batch):
        ...     return pa.record_batch({"score": pc.multiply(batch["speed"], 0.1)})
        >>> scored = stream.map(score, "score DOUBLE")
        """
        new = self._parsed(schema) if isinstance(schema, str) else schema
        return self._of(map_rows(self.plan, function, new, batch_rows))

    def queue(
        self,
        *,
        policy: Policy = "in-place",
        budget: int | str | None = "auto",
        weight: str | Column | None = None,
        access_interval: str | Column | None = None,
        cost: str | None = None,
        half_life: str = "60 seconds",
        stalest_keys: int = 0,
        shards: int = 16,
    ) -> Self:
        """Queue the rows beyond a batch's budget; newer rows supersede waiting ones of their key (tr620 §4-5).

        Parameters
        ----------
        policy
            ``in-place``: the stalest key first. ``linecutting``: keys that seldom update first. ``auto``: every row
            while the load allows, else linecutting. ``fifo``, ``append``, ``shed``: for comparison.
        budget
            The most rows that a batch processes. ``auto`` chooses the number that gives the least staleness. A
            duration, such as ``2 seconds``, chooses the number that takes a batch this long. None, or ``none`` as in
            SQL, processes all.
        weight
            A column or SQL expression: the factor by which a key's staleness counts.
        access_interval
            A duration (``10 seconds``), or a column or SQL expression of seconds: no key yields two results within it.
        cost
            The time to process one row, as a duration (``0.5 ms``) [default: as measured].
        half_life
            The half-life of the update rates by which linecutting decides.
        stalest_keys
            The number of longest-waiting keys that each batch reports, for :func:`upstream.stalest_keys`.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            The policy is unknown, or a number makes no sense.

        Notes
        -----
        Guarantee: waiting rows survive any crash. Except for late rows, and with ``append`` and ``shed``, the rows of a
        key that leave never go back in time.

        Examples
        --------
        >>> fresh = stream.queue(policy="in-place", budget=10_000)
        """
        rule = QueueBudget.parse(budget)
        plan = ShardPlan(
            self.key, self.event_time, shards, policy, rule.rows, rule.auto,
            half_life_s=seconds_argument("half_life", half_life),
            cost_s=None if cost is None else seconds_argument("cost", cost), stalest_keys=stalest_keys,
        )  # fmt: skip
        node = queue(self.plan, plan, rule.duration_s, weight, access_interval)
        if isinstance(weight, str):
            self._check_expression(weight)
        if isinstance(access_interval, str) and not is_duration(access_interval):
            self._check_expression(access_interval)
        return self._of(node)

    def union(
        self,
        other: Self,
        *,
        names: tuple[str, str] = ("left", "right"),
        prefer: str | None = None,
        overlap: bool = True,
        shards: int = 16,
    ) -> Self:
        """Merge the rows of two streams without waiting: each row passes on at once (Meld, thesis §8.2).

        Parameters
        ----------
        other
            A stream with the same key, time and columns.
        names
            The names of this stream and of the other one. They prefix the names of feeds: ``left/feed``.
        prefer
            The input whose row wins if both have one for the same key and time, even after the other [default: the
            first row]. Windows refuse such a stream, and need :meth:`merge` instead.
        overlap
            False if the inputs have no key and time in common: the operator then keeps nothing of rows that have passed
            on.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            A name, the preference or the number of shards makes no sense.
        SchemaError
            The streams have other keys, times or columns.

        Notes
        -----
        Guarantee: each row passes on in the batch in which it arrives. Rows of two inputs with equal key and time yield
        one row, as long as punctuation has not passed their time. A row that arrives later passes on and is counted.

        If all that follows needs the newest row of each key alone, a row does not pass on after a newer one of its key.

        Examples
        --------
        >>> both = stream.union(other)
        """
        right = plan_of("union", other)
        repeats = "inputs" if flag_argument("overlap", overlap) and self.event_time is not None else "keep"
        plan = ReorderPlan(
            "union", self.key, self.key, self.event_time, names, repeats=repeats, prefer=prefer, shards=shards
        )
        return self._of(reorder(plan, self.plan, right))

    def merge(
        self,
        other: Self,
        *,
        names: tuple[str, str] = ("left", "right"),
        prefer: str | None = None,
        dead_letters: bool = False,
        flush: Flush = "eager",
        flush_rows: int | None = None,
        shards: int = 16,
    ) -> Self:
        """Merge the rows of two streams in the order of time: a :meth:`union` whose rows wait as in :meth:`ordered`.

        Parameters
        ----------
        other, names, shards
            As for :meth:`union`.
        prefer
            The input whose row wins if both have one for the same key and time [default: the first row].
        dead_letters, flush, flush_rows
            As for :meth:`ordered`.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            The streams have no time, or as for :meth:`union` and :meth:`ordered`.
        SchemaError
            As for :meth:`union`.

        Examples
        --------
        >>> both = stream.merge(other, names=("north", "south"), prefer="north")
        """
        right = plan_of("merge", other)
        plan = ReorderPlan(
            "merge", self.key, self.key, self.event_time, names, hold=True, repeats="inputs", prefer=prefer,
            flush_rows=flush_rows_each(flush, flush_rows, shards), shards=shards,
        )  # fmt: skip
        return self._of(reorder(plan, self.plan, right, late_aside=flag_argument("dead_letters", dead_letters)))

    def ordered(
        self,
        *,
        dead_letters: bool = False,
        flush: Flush = "eager",
        flush_rows: int | None = None,
        shards: int = 16,
    ) -> Self:
        """Put rows in the order of time: each row waits until the low-watermark rules out an earlier one.

        Parameters
        ----------
        dead_letters
            Write rows that arrive below the low-watermark, and so do not pass on, to the dead-letter table. They are
            counted in any case.
        flush
            ``eager`` releases all rows that need not wait, ``slow`` at most `flush_rows` in a batch, and the rest in
            the following batches.
        flush_rows
            For ``slow``: the most rows in a batch of all shards.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. Each part is in order; with 1, all rows
            are.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            The stream has no time, or an option makes no sense.

        Notes
        -----
        Guarantee: the rows that pass on, and their order, follow from the rows and the punctuation. Rows of one time
        are in the order of arrival.

        Examples
        --------
        >>> in_order = stream.ordered()
        """
        plan = ReorderPlan(
            "ordered", self.key, self.key, self.event_time, hold=True,
            flush_rows=flush_rows_each(flush, flush_rows, shards), shards=shards,
        )  # fmt: skip
        return self._of(reorder(plan, self.plan, late_aside=flag_argument("dead_letters", dead_letters)))

    def distinct(
        self,
        *columns: str,
        late: Late = "refuse",
        dead_letters: bool = False,
        shards: int = 16,
    ) -> Self:
        """Keep the first to arrive of the rows that have the same time and the same values in some columns.

        After results that are retracted, keep the values themselves: each is a row, as long as a newest row has it.

        Parameters
        ----------
        columns
            The columns to compare [default: the key]. After results that are retracted, the rows have no others.
        late
            The treatment of rows below the low-watermark. They may be repeats, since the operator forgets rows that
            have passed on as punctuation passes their time. ``refuse`` drops them, ``pass`` lets them pass on; both
            count them.
        dead_letters
            Write refused rows to the dead-letter table.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        UpdateStream

        Raises
        ------
        OptionError
            The stream has no time, or an option makes no sense.
        SchemaError
            There is no such column.

        Examples
        --------
        >>> once = stream.distinct("vehicle_id", "speed")
        """
        by = distinct_by(self.plan, columns)
        if self.plan.retracts:
            if late != "refuse" or dead_letters:
                raise OptionError(
                    f"distinct(late={late!r}, dead_letters={dead_letters}) after results that are retracted",
                    expected="neither: what arrives later is newer there",
                )
            return self._of(open_groups(self.plan, by, ttl=None, tombstone_retention=None, shards=shards).distinct())
        plan = ReorderPlan("distinct", self.key, by, self.event_time, repeats="all", late=late, shards=shards)
        return self._of(reorder(plan, self.plan, late_aside=flag_argument("dead_letters", dead_letters)))

    def _transformed(self, step: RowStep, left_out: IncompleteInput | None = None) -> Self:
        """Return the stream after a step on rows or columns that leaves keys in their tasks."""
        plan = self.plan
        return self._of(
            Transform(
                plan.key, plan.time, self._after(step), left_out or plan.left_out, plan.in_order, plan.shards,
                inputs=(plan,), step=step,
            )
        )  # fmt: skip

    def _after(self, step: RowStep) -> StructType:
        """Return the columns after a step, as Spark infers them: from no rows if the stream needs a checkpoint."""
        plan = self.plan
        empty = needs_checkpoint(plan)
        sample: DataFrame = self.session.createDataFrame([], plan.schema) if empty else bind(plan, None).df
        return on_spark(step, sample, plan.fixed).schema

    def _check_expression(self, text: str) -> None:
        """Let Spark raise an error for an expression that is not SQL."""
        from pyspark.sql import functions as F

        F.expr(text)

    def _parsed(self, ddl: str) -> StructType:
        from pyspark.sql.types import StructType

        return cast("StructType", StructType.fromDDL(ddl))

    def _table(self, path: str, storage: dict[str, Any]) -> tuple[str, pa.Schema]:
        """Return a table's location, and its columns."""
        location = absolute_location(path)
        return location, columns_of_table(location, storage)


def plan_of(what: str, other: object) -> Node:
    """Return the plan of the other stream of a step."""
    if not isinstance(other, StreamSteps):
        raise OptionError(
            f"{what} with {other!r}",
            expected="an UpdateStream",
            hint="join a Delta table by join_table(path, on=…), and a static DataFrame before the stream is made: "
            "from_dataframe(df.join(static, …), …)",
        )
    return other.plan
