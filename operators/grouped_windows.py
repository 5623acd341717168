"""Windows over the newest row of each key: ``stream.group_by("route_id").window("10 minutes").agg(n=count())``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Generic, TypeVar, get_args

from ..conf.errors import OptionError, SchemaError
from ..conf.options import count_argument, duration_argument, path_argument, text_argument
from ..core.rows.event_times import check_time_type, check_time_zone
from ..core.rows.system_column import SYSTEM
from ..plan.newest_nodes import Versions, WindowedGroups, WindowVersions
from ..plan.nodes import IncompleteInput, check_complete
from ..plan.properties import check_promised, identity_of
from .aggregates.algebra import Aggregates
from .aggregates.parts import Aggregate, check_named
from .grouped.plan import GroupWindowPlan, Newest
from .joins.latest_plan import VersionPlan
from .keyed_stream import KeyedRows
from .windows.kinds import CalendarWindows, SlidingWindows
from .windows.panes import check_size, paned
from .windows.parse import windows_asked
from .windows.shards.plan import WindowPlan

if TYPE_CHECKING:
    import datetime as dt

    from ..plan.nodes import Node


StreamT = TypeVar("StreamT", bound=KeyedRows)


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowOptions:
    """The options of windows by group, as :meth:`~upstream.operators.group_by.GroupedStream.window` receives them."""

    duration: str
    slide: str | None = None
    early: bool = False
    newest: Newest = "window"
    event_time: str | None = None
    allowed_lateness: str = "0 seconds"
    late_location: str | os.PathLike[str] | None = None
    origin: str | dt.datetime | dt.date | None = None
    zone: str | None = None
    time_format: str | None = None
    time_zone: str = "UTC"


@dataclasses.dataclass(frozen=True)
class WindowedGroupsStream(Generic[StreamT]):
    """Windows of the newest rows, by group, to be aggregated; made by
    :meth:`~upstream.operators.group_by.GroupedStream.window`.

    Attributes
    ----------
    stream
    group : tuple of str
        The columns of the group.
    options : WindowOptions
    key : tuple of str
        What names a row: of several with one key only the newest counts.
    windows
        Of a duration by time.
    shards : int
    """

    stream: StreamT
    group: tuple[str, ...]
    options: WindowOptions
    key: tuple[str, ...]
    windows: SlidingWindows | CalendarWindows
    shards: int

    def agg(self, **aggregates: Aggregate) -> StreamT:
        """Aggregate the newest rows of each group and window.

        Parameters
        ----------
        aggregates
            The results' names, and what they are: ``vehicles=count(), slowest=min("speed")``.

        Returns
        -------
        UpdateStream
            Of results, and of tombstones for windows that are empty again: the columns of the group, ``window_id``,
            ``window_start``, ``window_end``, ``window_time``, ``final``, and the aggregates. Its key is the group with
            ``window_id``. Its time is ``window_time``, the last instant inside the window.

        Raises
        ------
        OptionError
            There is no aggregate.
        SchemaError
            A column does not exist, has a type that an aggregate cannot take, or two columns of the results would have
            one name.

        Notes
        -----
        Guarantee: results are those of a query over all rows that were not late, whatever their order of arrival and
        the batches. A result with ``final = true`` does not change, and its state is dropped.

        Examples
        --------
        >>> slow = stream.group_by("vehicle_id").window("15 minutes").agg(slowest=us.min("speed"))
        >>> slow.schema.names[:5]
        ['vehicle_id', 'window_id', 'window_start', 'window_end', 'window_time']
        """
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        from .windows.shards.results import RESULT_COLUMNS, result_schema

        stream, options = self.stream, self.options
        check_named(aggregates, {*self.group, *RESULT_COLUMNS, SYSTEM})
        hidden = set(self.group) & set(RESULT_COLUMNS)
        if hidden:
            raise SchemaError(
                f"the group has the column {', '.join(sorted(hidden))}, and results have a column of that name",
                expected="columns of other names than " + ", ".join(RESULT_COLUMNS),
                hint="rename the column",
            )
        schema = to_arrow_schema(stream.schema, timezone="UTC")
        time = options.event_time or stream.event_time
        assert time is not None
        check_time_type(time, schema.field(time).type, options.time_format, "time_format")
        late = options.late_location
        window = WindowPlan(
            key=self.group,
            time=time,
            time_format=options.time_format,
            time_zone=options.time_zone,
            windows=self.windows,
            aggregates=aggregates,
            emit="all+early" if options.early else "all",
            method="paned",
            lateness_us=duration_argument("allowed_lateness", options.allowed_lateness),
            shards=self.shards,
            schema=schema,
        )
        Aggregates.of(aggregates, schema)  # refuses unsuitable columns, and no aggregates
        check_size(paned(self.windows), "wid", True, window.algebra.empty(1).nbytes)
        ends = options.newest == "window"
        early = options.early or not ends
        plan = GroupWindowPlan(window, self.key, stream.event_time, options.newest, early)
        late_rows = None if late is None else path_argument("late_location", late)
        before: Node = stream.plan
        if not plan.stays:
            versioned = from_arrow_schema(plan.side.versioned)
            if ends:
                before = WindowVersions(
                    self.key, time, versioned, None, False, self.shards,
                    inputs=(before,), specification=plan, late_location=late_rows,
                )  # fmt: skip
                late_rows = None
            else:
                before = Versions(
                    self.key, None, versioned, None, False, self.shards,
                    inputs=(before,), specification=VersionPlan(plan.side, self.shards),
                )  # fmt: skip
        left_out = IncompleteInput(
            "group_by(…).window(…) gives a window again when it changes",
            "leave early out"
            if ends
            else "aggregate windows of windows by group_by(…).window(…) without newest='table'",
        )
        return stream.__class__._of(
            WindowedGroups(
                (*self.group, "window_id"), "window_time", from_arrow_schema(result_schema(window)),
                left_out if early else None, False, None, inputs=(before,), specification=plan,
                late_location=late_rows, ends=ends, early=early,
            )
        )  # fmt: skip


def group_windows(
    stream: StreamT, group: tuple[str, ...], options: WindowOptions, shards: int
) -> WindowedGroupsStream[StreamT]:
    """Return windows by group after checking that they can be computed.

    Raise OptionError for wrong options, or without an event time or a low-watermark. Raise SchemaError if the stream
    lacks rows that would count.
    """
    if options.newest not in get_args(Newest):
        raise OptionError(
            f"newest={options.newest!r}",
            expected="'window' or 'table'",
            hint="'window' counts each key in each window, 'table' only in the windows of its newest row",
        )
    if not isinstance(options.early, bool):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"early={options.early!r}", expected="True or False")
    check_time_zone("time_zone", options.time_zone)
    text_argument("zone", options.zone)
    text_argument("time_format", options.time_format)
    count_argument("shards", shards)
    lateness_us = duration_argument("allowed_lateness", options.allowed_lateness)
    windows, by_rows = windows_asked(options.duration, options.slide, options.origin, options.zone)
    over = windows.over if isinstance(windows, CalendarWindows) else windows
    if by_rows or not isinstance(windows, SlidingWindows | CalendarWindows) or not isinstance(over, SlidingWindows):
        raise OptionError(
            f"group_by(…).window({options.duration!r}, slide={options.slide!r})",
            expected="sliding or tumbling windows by time, such as '10 minutes': a row that is taken back would change "
            "landmark windows and windows of rows without number",
            hint="give a duration, and a slide that is one too",
        )
    key = stream.key
    if options.newest == "table":
        _check_table(stream, options, lateness_us)
    else:
        if options.event_time is not None:
            raise OptionError(
                f"event_time={options.event_time!r} with newest='window'",
                expected="the stream's event time: it decides which row of a window is newest",
                hint="leave it out, or give newest='table'",
            )
        named = identity_of(stream.plan)
        if named is None:
            check_complete(stream.plan.left_out)
            raise SchemaError(
                "windows over results that are taken back, of which each may have another time than before",
                expected="every row, once, or windows that are given again",
                hint="group_by(…).window(…, newest='table') counts only the newest row of each key",
            )
        if stream.event_time is None:
            raise _no_time()
        check_promised(stream.plan, "windows by time", "; window(…, newest='table') needs none")
        key = named
    return WindowedGroupsStream(stream, group, options, key, windows, shards)


def _check_table(stream: KeyedRows, options: WindowOptions, lateness_us: int) -> None:
    if lateness_us or options.late_location is not None:
        raise OptionError(
            "allowed_lateness or late_location with newest='table'",
            expected="neither: a window of a table never becomes final, so no row is late for it",
            hint="leave them out",
        )
    time = text_argument("event_time", options.event_time) or stream.event_time
    if time is None:
        raise _no_time()
    if time not in stream.schema.names or time == SYSTEM:
        raise SchemaError(
            f"event_time={time!r}, which the stream has not",
            expected="a column among " + ", ".join(name for name in stream.schema.names if name != SYSTEM),
            hint="correct the name",
        )


def _no_time() -> OptionError:
    return OptionError(
        "windows by time on a stream without an event time",
        expected="an event time: UpdateStream(df, key=…, event_time=…)",
        hint="name the column by which rows lie in windows: group_by(…).window(…, newest='table', "
        "event_time='join_time') after join_latest",
    )
