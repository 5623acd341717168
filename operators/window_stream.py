"""Windows on a fluent stream: ``stream.window("10 minutes", "1 minute").agg(n=count())``."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..conf.errors import OptionError, SchemaError
from ..core.rows.event_times import check_time_type
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import NumberRows, Window
from .aggregates.algebra import Aggregates
from .aggregates.parts import Aggregate
from .windows.panes import check_size, paned
from .windows.sessions import SessionWindows
from .windows.shards.plan import NUMBER, WindowPlan, left_out_by_windows, revises

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from .grouped_windows import WindowedGroupsStream
    from .keyed_stream import KeyedRows


StreamT = TypeVar("StreamT", bound="KeyedRows")


@dataclasses.dataclass(frozen=True)
class WindowedStream(Generic[StreamT]):
    """A stream with windows, to be aggregated; made by :meth:`UpdateStream.window`.

    Attributes
    ----------
    stream
    options : mapping
        As they were given, checked but for what needs the aggregates.
    over_revised
        The windows, where the stream is one of windows that are given again.
    """

    stream: StreamT
    options: dict[str, Any]
    over_revised: WindowedGroupsStream[StreamT] | None = None

    def agg(self, **aggregates: Aggregate) -> StreamT:
        """Aggregate each key's windows.

        Parameters
        ----------
        aggregates
            The results' names, and what they are: ``n=count(), total=sum_("value")``.

        Returns
        -------
        UpdateStream
            Of results: the key, ``window_id``, ``window_start``, ``window_end``, ``window_time``, ``final``, and the
            aggregates. Its key is the stream's, or the columns of ``by``. Its time is ``window_time``, the last instant
            inside the window, so that a later window holds exactly the windows inside it.

        Raises
        ------
        OptionError
            There is no aggregate, or an option does not go with them.
        SchemaError
            A column does not exist, has a type that an aggregate cannot take, or two columns of the results would have
            one name.

        Notes
        -----
        Guarantee: results are a function of the rows and the punctuation, whatever the order of arrival and the
        batches. Each window closes once, when the low-watermark of all feeds has passed its end.

        Examples
        --------
        >>> stream.window("15 minutes").agg(speed=us.avg("speed"), rows=us.count()).schema.names
        ['vehicle_id', 'window_id', 'window_start', 'window_end', 'window_time', 'final', 'speed', 'rows', '_upstream']
        """
        import pyarrow as pa
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        if self.over_revised is not None:
            return self.over_revised.agg(**aggregates)
        from .windows.shards.adaptive_keys import with_automatic_method
        from .windows.shards.results import RESULT_COLUMNS, result_schema
        from .windows.shards.stream_numbers import NumberingPlan

        stream, given = self.stream, self.options
        key: tuple[str, ...] = given["by"] or stream.key
        taken = {*key, *RESULT_COLUMNS, SYSTEM} & set(aggregates)
        if taken:
            raise SchemaError(
                f"an aggregate is named {', '.join(sorted(taken))}, and results have a column of that name",
                expected="another name than the key's columns, " + ", ".join(RESULT_COLUMNS),
            )
        hidden = set(key) & set(RESULT_COLUMNS)
        if hidden:
            raise SchemaError(
                f"the key has the column {', '.join(sorted(hidden))}, and results have a column of that name",
                expected="key columns of other names than " + ", ".join(RESULT_COLUMNS),
                hint="rename the column, and begin a stream with the new name in its key",
            )
        given_as: dict[str, object] = dict(aggregates)  # whatever it is
        wrong = [f"{name}={each!r}" for name, each in given_as.items() if not isinstance(each, Aggregate)]
        if wrong:
            raise OptionError(
                f"{', '.join(wrong)} is no aggregate",
                expected="what the functions of upstream.aggregates make",
                hint="write for example n=aggregates.count(), total=aggregates.sum_('value')",
            )
        schema = to_arrow_schema(stream.schema, timezone="UTC")
        by_rows, of_stream = not given["time"], given["of"] == "stream"
        if stream.event_time is not None and not by_rows:
            check_time_type(
                stream.event_time, schema.field(stream.event_time).type, given["time_format"], "time_format"
            )
        automatic = given["method"] == "auto"
        plan = WindowPlan(
            key=key,
            update_key=None if given["by"] is None else stream.key,
            time=NUMBER if of_stream else None if by_rows else stream.event_time,
            time_format=given["time_format"],
            time_zone=given["time_zone"],
            windows=given["windows"],
            aggregates=aggregates,
            emit=given["emit"],
            method="paned" if automatic else given["method"],
            lateness_us=given["lateness_us"],
            shards=given["shards"],
            schema=schema.append(pa.field(NUMBER, pa.int64())) if of_stream else schema,
            tombstones=given["tombstones"],
            flush=given["flush"],
            flush_rows=given["flush_rows"],
            flush_windows=given["flush_windows"],
        )
        _check(plan, given["late_location"])
        if automatic:
            plan = with_automatic_method(plan)
        before = stream.plan
        if plan.by_number:
            numbered = pa.schema([plan.schema.field(name).with_nullable(True) for name in plan.columns])
            plan = dataclasses.replace(plan, schema=numbered)
            before = NumberRows(
                stream.key, None, from_arrow_schema(numbered), None, False, None,
                inputs=(before,), specification=NumberingPlan(numbered),
            )  # fmt: skip
        spark_schema: StructType = from_arrow_schema(result_schema(plan))
        return stream.__class__._of(
            Window(
                key, "window_time", spark_schema, left_out_by_windows(plan), False, plan.shards,
                inputs=(before,), specification=plan, revises=revises(plan),
                late_location=given["late_location"], paced=plan.flush_rows is not None,
                promises=not (by_rows or plan.by_number),
            )
        )  # fmt: skip


def _check(plan: WindowPlan, late_location: str | None) -> None:
    Aggregates.of(plan.aggregates, plan.schema)  # refuses unsuitable columns, and no aggregates
    if isinstance(plan.windows, SessionWindows):
        return
    entry = plan.algebra.empty(1)
    check_size(paned(plan.windows), plan.method, plan.every, entry.nbytes)
    over_rows = plan.by_rows or plan.by_number
    if over_rows and (plan.emit == "eager" or plan.lateness_us or (plan.by_rows and plan.method != "paned")):
        raise OptionError(
            "windows over rows with a method, output='eager' or an allowed lateness",
            expected="output='latest' or 'all', early or not: rows are counted as they arrive, so none is late",
        )
    if plan.by_number and late_location is not None:
        raise OptionError(
            f"late_location={late_location!r} with windows over the rows of the whole stream",
            expected="no late_location: rows are counted as they arrive, so none is late",
            hint="leave it out",
        )
    if plan.by_number and plan.flush == "lazy":
        raise OptionError(
            "flush='lazy' with windows over the rows of the whole stream",
            expected="flush='eager' or 'slow': after the last row no window closes, and a result would wait for ever",
        )
    if plan.flush != "eager" and plan.by_rows:
        raise OptionError(
            f"flush={plan.flush!r} with windows over rows",
            expected="windows by time: a window over rows closes with its key's last row, so there is no burst",
        )
    if plan.rows_apart > 1 and plan.early:
        raise OptionError(
            f"early=True with windows that slide by {plan.rows_apart} rows",
            expected="early=False: which row is the n-th is known only when the low-watermark has passed it"
            if not plan.numbers_arrivals
            else "early=False: such a window gives its result once, when the low-watermark has passed its row",
        )
    if plan.flush == "lazy" and plan.paned.by_row:
        raise OptionError(
            "flush='lazy' with windows that slide by row",
            expected="sliding, tumbling, calendar or landmark windows, so that it is known how many windows later a "
            "result has to leave",
            hint="flush='slow' takes them all",
        )
    if plan.lateness_us and (plan.paned.endless or plan.paned.by_row):
        raise OptionError(
            "allowed_lateness on landmark windows, or on windows that slide by row",
            expected="sliding or tumbling windows by time: here a late row would change windows without number",
            hint="leave it out; late rows still count in the windows that are open",
        )
    panes = paned(plan.windows)
    if plan.method == "wid" and (panes.endless or panes.by_row):
        raise OptionError(
            "method='wid' on landmark windows, or on windows that slide by row",
            expected="'paned', 'adaptive' or 'buffering': how many of them a row is in is not known when it comes",
        )
    if plan.emit == "eager" and (panes.endless or panes.by_row or plan.keeps_rows or plan.lateness_us):
        raise OptionError(
            "output='eager' on landmark windows, on windows that slide by row, with a method that keeps rows, or with "
            "an allowed lateness",
            expected="sliding or tumbling windows, the method paned or wid, and no lateness: rows that no committed "
            "window needs are not kept",
            hint="output='latest' takes them all",
        )
