"""Steps that combine streams, or order one."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..conf.errors import OptionError, SchemaError
from ..conf.options import path_argument, text_argument
from ..plan.nodes import IncompleteInput, Reorder
from ..plan.properties import check_final, check_promised
from .keyed_stream import KeyedRows
from .reorder.plan import Late, ReorderPlan, Repeats, check_inputs, check_ordered
from .runtime.ticks import Flush, flush_rows_each

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Self

    from ..plan.nodes import Node


_OUT_OF_ORDER = "would hold back results that are to be given early"


class CombinationSteps(KeyedRows):
    """Unions, merges, ordered release, distinct: part of :class:`~upstream.operators.stream.UpdateStream`."""

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
        if not isinstance(overlap, bool):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
            raise OptionError(f"overlap={overlap!r}", expected="True or False")
        repeats: Repeats = "inputs" if overlap and self.event_time is not None else "keep"
        plan = ReorderPlan(
            "union", self.key, self.key, self.event_time, names, repeats=repeats, prefer=prefer, shards=shards
        )
        left_out: IncompleteInput | None = None
        if prefer is not None:
            left_out = IncompleteInput(
                "union(prefer=…) lets the preferred row follow another one with its key and time, and both would count",
                "use merge(…, prefer=…), which waits until both have come",
            )
        return self._combined(other, plan, None, left_out)

    def merge(
        self,
        other: Self,
        *,
        names: tuple[str, str] = ("left", "right"),
        prefer: str | None = None,
        late_location: str | os.PathLike[str] | None = None,
        flush: Flush = "eager",
        flush_rows: int | None = None,
        time_format: str | None = None,
        shards: int = 16,
    ) -> Self:
        """Merge the rows of two streams in the order of time: a :meth:`union` whose rows wait as in :meth:`ordered`.

        Parameters
        ----------
        other, names, shards
            As for :meth:`union`.
        prefer
            The input whose row wins if both have one for the same key and time [default: the first row].
        late_location, flush, flush_rows, time_format
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
        check_ordered(self.event_time, self._time_type(), "merge", time_format)
        each = flush_rows_each(flush, flush_rows, shards)
        plan = ReorderPlan(
            "merge", self.key, self.key, self.event_time, names, hold=True, repeats="inputs", prefer=prefer,
            flush_rows=each, shards=shards, time_format=time_format,
        )  # fmt: skip
        return self._combined(other, plan, late_location, None)

    def ordered(
        self,
        *,
        late_location: str | os.PathLike[str] | None = None,
        flush: Flush = "eager",
        flush_rows: int | None = None,
        time_format: str | None = None,
        shards: int = 16,
    ) -> Self:
        """Put rows in the order of time: each row waits until the low-watermark rules out an earlier one.

        Parameters
        ----------
        late_location
            A folder for rows that arrive below the low-watermark and so do not pass on, as Parquet files; without it
            they are only counted.
        flush
            ``eager`` releases all rows that need not wait, ``slow`` at most `flush_rows` in a batch, and the rest in
            the following batches.
        flush_rows
            For ``slow``: the most rows in a batch of all shards.
        time_format
            The format of a time column of numbers, such as ``epoch_ms``, for a source with ``idle=ets``.
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
        check_ordered(self.event_time, self._time_type(), "ordered", time_format)
        check_final(self.plan, "ordered()", _OUT_OF_ORDER)
        check_promised(self.plan, "ordered()")
        each = flush_rows_each(flush, flush_rows, shards)
        plan = ReorderPlan(
            "ordered",
            self.key,
            self.key,
            self.event_time,
            hold=True,
            flush_rows=each,
            shards=shards,
            time_format=time_format,
        )
        return self._reordered(plan, (self.plan,), late_location, self.plan.left_out)

    def distinct(
        self,
        *columns: str,
        late: Late = "refuse",
        late_location: str | os.PathLike[str] | None = None,
        shards: int = 16,
    ) -> Self:
        """Keep the first to arrive of the rows that have the same time and the same values in some columns.

        Parameters
        ----------
        columns
            The columns to compare [default: the key].
        late
            The treatment of rows below the low-watermark. They may be repeats, since the operator forgets rows that
            have passed on as punctuation passes their time. ``refuse`` sets them aside, ``pass`` lets them pass on;
            both count them.
        late_location
            A folder for refused rows, as Parquet files; without it they are only counted.
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
        self._check_key_columns("distinct")
        check_ordered(self.event_time, self._time_type(), "distinct", None)
        check_final(self.plan, "distinct()", "would take a result that changes for a repeat")
        check_promised(self.plan, "distinct()")
        for each in columns:
            if text_argument("distinct", each) is None:
                raise OptionError("distinct(None)", expected="names of columns")
        by = tuple(dict.fromkeys(each for each in columns if each != self.event_time)) or self.key
        absent = [each for each in by if each not in self.schema.names]
        if absent:
            raise SchemaError(
                f"distinct by {', '.join(absent)}, which the stream has not",
                expected="columns among " + ", ".join(self.schema.names),
            )
        if late not in ("refuse", "pass"):
            raise OptionError(f"late={late!r}", expected="'refuse' or 'pass'")
        flush_rows_each("eager", None, shards)
        plan = ReorderPlan("distinct", self.key, by, self.event_time, repeats="all", late=late, shards=shards)
        return self._reordered(plan, (self.plan,), late_location, self.plan.left_out)

    def _combined(
        self,
        other: Self,
        plan: ReorderPlan,
        late: str | os.PathLike[str] | None,
        left_out: IncompleteInput | None,
    ) -> Self:
        if not isinstance(other, KeyedRows):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
            raise OptionError(f"{plan.name} with {other!r}", expected="an UpdateStream")
        check_inputs(plan.inputs, plan.prefer)
        flush_rows_each("eager", None, plan.shards)
        if (self.key, self.event_time) != (other.key, other.event_time):
            raise SchemaError(
                f"{plan.name} of a stream with key {', '.join(self.key)} and time {self.event_time} and one with key "
                f"{', '.join(other.key)} and time {other.event_time}",
                expected="the same key and time in both",
                hint="rename the columns of one, and name them as its key and time",
            )
        kinds = [{field.name: field.dataType for field in each} for each in (self.schema, other.schema)]
        if kinds[0] != kinds[1]:
            differ = sorted(name for name in {*kinds[0], *kinds[1]} if kinds[0].get(name) != kinds[1].get(name))
            raise SchemaError(
                f"{plan.name} of streams that differ in {', '.join(differ)}",
                expected="the same columns, of the same types",
                hint="select and cast the columns of one as the other has them",
            )
        for each in (self.plan, other.plan):
            if plan.hold:
                check_final(each, f"{plan.name}()", _OUT_OF_ORDER)
                check_promised(each, f"{plan.name}()")
            elif self.event_time is not None:
                check_final(each, f"{plan.name}()", "would mix up results, which each input numbers by itself")
        left_out = self.plan.left_out or other.plan.left_out or left_out
        return self._reordered(plan, (self.plan, other.plan), late, left_out)

    def _reordered(
        self,
        plan: ReorderPlan,
        inputs: tuple[Node, ...],
        late: str | os.PathLike[str] | None,
        left_out: IncompleteInput | None,
    ) -> Self:
        return self._of(
            Reorder(
                self.key, self.event_time, self.schema, left_out, plan.hold,
                plan.shards if plan.by == self.key else None,
                inputs=inputs, specification=plan, name=plan.name,
                late_location=None if late is None else path_argument("late_location", late),
                paced=plan.flush_rows is not None,
            )
        )  # fmt: skip

    def _time_type(self) -> pa.DataType | None:
        from pyspark.sql.pandas.types import to_arrow_type

        return None if self.event_time is None else to_arrow_type(self.schema[self.event_time].dataType, timezone="UTC")
