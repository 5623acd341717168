"""The windows and groups of a stream, and their aggregates."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, Literal, TypeVar

import pyarrow as pa

from ..conf.errors import OptionError
from ..conf.options import duration_argument
from ..operators.aggregates.parts import Aggregate
from ..operators.group_by import GroupWindows, NewestGroups, group_windows, open_groups
from ..operators.grouped.plan import Newest
from ..operators.runtime.ticks import flush_rows_each
from ..operators.step_arguments import late_argument
from ..operators.window_steps import KeyWindows, WindowMethod, counts_again, group_argument, time_of
from ..operators.windows.emission import Output, emit_for
from ..operators.windows.parse import RowOrder, RowsOf, sessions_asked, windows_asked, windows_of_groups
from ..operators.windows.shards.plan import NUMBER, ResultsFlush, Tombstones, WindowPlan
from ..plan.nodes import check_complete
from .steps import StreamSteps

if TYPE_CHECKING:
    import datetime as dt

    from typing_extensions import Self


StreamT = TypeVar("StreamT", bound=StreamSteps)


@dataclasses.dataclass(frozen=True)
class WindowedStream(Generic[StreamT]):
    """A stream with windows, to be aggregated; made by :meth:`~upstream.UpdateStream.window`, or for groups of newest
    rows by :meth:`GroupedStream.window`.

    Attributes
    ----------
    stream
    windows
        What is known of them before their aggregates.
    """

    stream: StreamT
    windows: KeyWindows | GroupWindows

    def agg(self, **aggregates: Aggregate) -> StreamT:
        """Aggregate each key's windows.

        Parameters
        ----------
        aggregates
            The results' names, and what they are: ``n=us.count(), total=us.sum("value")``.

        Returns
        -------
        UpdateStream
            Of results: the key, ``window_id``, ``window_start``, ``window_end``, ``window_time``, ``final``, and the
            aggregates. Its key is the stream's, or the columns of ``by``. Its time is ``window_time``, the last instant
            inside the window, so that a later window holds exactly the windows inside it. For groups, its key is the
            group with ``window_id``, and tombstones remove windows that are empty again.

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
        batches. Each window closes once, when the low-watermark of all feeds has passed its end. A result with
        ``final = true`` does not change, and its state is dropped.

        Examples
        --------
        >>> stream.window("15 minutes").agg(speed=us.avg("speed"), rows=us.count()).schema.names
        ['vehicle_id', 'window_id', 'window_start', 'window_end', 'window_time', 'final', 'speed', 'rows', '_upstream']
        """
        return self.stream.__class__._of(self.windows.aggregated(aggregates))


@dataclasses.dataclass(frozen=True)
class GroupedStream(Generic[StreamT]):
    """The newest row of each key, by group; made by :meth:`~upstream.UpdateStream.group_by`.

    Attributes
    ----------
    stream
    groups
        What is known of them before their aggregates.
    """

    stream: StreamT
    groups: NewestGroups

    def agg(self, **aggregates: Aggregate) -> StreamT:
        """Aggregate the newest row of each key of a group.

        Parameters
        ----------
        aggregates
            The results' names, and what they are: ``vehicles=count(), slowest=min("speed")``.

        Returns
        -------
        UpdateStream
            Of results, and of tombstones for groups that have no key any more: the columns of the group, which are its
            key, and the aggregates. It has no event time: what arrives later is newer.

        Raises
        ------
        OptionError
            There is no aggregate.
        SchemaError
            A column does not exist, has a type that an aggregate cannot take, or two columns of the results would have
            one name.

        Notes
        -----
        Guarantee: after each batch the table holds the aggregates of the newest row of each key, whatever the order of
        arrival and the batches. A key whose newest row has another group leaves the one and enters the other in one
        commit. Approximate aggregates keep their error bounds.

        Examples
        --------
        >>> stream.group_by("vehicle_id").agg(speed=us.avg("speed")).schema.names
        ['vehicle_id', 'speed', '_upstream']
        """
        return self.stream.__class__._of(self.groups.aggregated(aggregates))

    def window(
        self,
        duration: str,
        slide: str | None = None,
        *,
        early: bool = False,
        newest: Newest = "window",
        event_time: str | None = None,
        allowed_lateness: str = "0 seconds",
        late_location: str | os.PathLike[str] | None = None,
        origin: str | dt.datetime | dt.date | None = None,
        zone: str | None = None,
        time_format: str | None = None,
        time_zone: str = "UTC",
    ) -> WindowedStream[StreamT]:
        """Open windows of each group, in which each key counts once, with its newest row.

        Parameters
        ----------
        duration, slide, origin, zone, time_format, time_zone
            As for :meth:`~upstream.UpdateStream.window`: sliding or tumbling windows by time.
        early
            Also emit interim results, with ``final = false``, whenever a window changes.
        newest
            ``window``: a key counts in each window with its newest row in that window. ``table``: a key counts with
            its newest row of all, and only in the windows of that row. A newer row may take it out of any window, so
            no window is final, and all results are early.
        event_time
            The column that places rows in windows, with ``newest="table"`` [default: the stream's event time]. After
            `join_latest`, give ``join_time`` or a column of the left or right.
        allowed_lateness
            How long after the watermark has passed its end a window still changes. It is final after that.
        late_location
            A folder for later rows, as Parquet files; without it they are only counted.

        Returns
        -------
        WindowedStream
            To be aggregated by its method `agg`.

        Raises
        ------
        OptionError
            An option makes no sense, or the stream has no event time or no watermark.
        SchemaError
            Rows are missing that would count: the stream coalesces, comes from a queue, or takes results back.

        Notes
        -----
        The stream may have windows that are given again: by early results, or within an allowed lateness. Then a
        revised window replaces the one before it. A tombstone, such as those of ``where(…, on_leave="delete")``, takes
        its key out of the windows in which it is the newest row.

        Examples
        --------
        >>> slow = stream.group_by("vehicle_id").window("15 minutes", early=True).agg(slowest=us.min("speed"))
        """
        groups = self.groups
        groups.check_windows()
        window = WindowPlan(
            key=groups.columns, time=groups.before.time, time_format=time_format, time_zone=time_zone,
            windows=windows_of_groups(duration, slide, origin, zone), aggregates={},
            emit=emit_for("all", early=early), method="paned",
            lateness_us=duration_argument("allowed_lateness", allowed_lateness), shards=groups.shards,
            schema=groups.before.arrow,
        )  # fmt: skip
        late = late_argument(late_location)
        return WindowedStream(self.stream, group_windows(groups.before, window, late, newest, event_time))


class StreamWindows(StreamSteps):
    """Windows and groups: part of :class:`~upstream.UpdateStream`."""

    def window(
        self,
        duration: str,
        slide: str | None = None,
        *,
        of: RowsOf = "key",
        order: RowOrder | None = None,
        by: str | Sequence[str] | None = None,
        output: Output = "latest",
        early: bool = False,
        method: WindowMethod = "auto",
        allowed_lateness: str = "0 seconds",
        late_location: str | os.PathLike[str] | None = None,
        origin: str | dt.datetime | dt.date | None = None,
        zone: str | None = None,
        time_format: str | None = None,
        time_zone: str = "UTC",
        tombstones: Tombstones = "fail",
        flush: ResultsFlush = "eager",
        flush_rows: int | None = None,
        flush_windows: int = 1,
        shards: int = 16,
    ) -> WindowedStream[Self]:
        """Open windows of each key on the stream's time, to be aggregated by
        :meth:`~upstream.api.windows.WindowedStream.agg`.

        Parameters
        ----------
        duration
            RANGE, how long a window is: ``10 minutes``; with `zone` also ``1 day``, ``1 month``. ``all`` for everything
            so far, every `slide` (landmark windows). ``100 rows`` for the last rows of each key, or of the whole
            stream, in the order of arrival. Such windows close with their last row. Their `window_start`, `window_end`
            and `window_time` are row numbers, counted from 0.
        slide
            SLIDE, how far they are apart [default: `duration`, windows that tumble]. ``1 row`` for a window by time
            that ends with each row, ``10 rows`` for one that ends with every tenth row of its key.
        of
            For windows of rows: count the rows of each ``key``, or group of `by`, alone; or of all keys together
            (``stream``), in one task.
        order
            For windows by time that end with every n-th row: count rows in the order of ``time`` [default] or
            ``arrival``.
        by
            The columns by which rows have windows of their own, and the results' key [default: the update key]. Every
            row has to have them. They are no fractions, which look equal and differ.
        output
            ``latest``: of each key the latest complete window. ``all``: every window that has a row. ``eager``: each
            key's latest started window, and no other until it closes.
        early
            Also emit interim results of the open window, with ``final = false``. Not with ``eager``.
        method
            How windows are computed, at the same results: see `docs/windows.md`.
        allowed_lateness
            How long after a window closed rows for it still count, and its result is given again.
        late_location
            A folder for later rows, as Parquet files; without it they are only counted.
        origin, zone
            From where windows are counted, and whose calendar they follow: see
            :func:`~upstream.operators.windows.parse.window_by_time`.
        time_format, time_zone
            How the stream's time is read, as the source's options of these names.
        tombstones
            Rows that delete their key ``fail`` the query, or are counted and left out (``drop``).
        flush
            How the results of a closed window leave: all at once (``eager``), at most `flush_rows` in a batch
            (``slow``), or with the key's first row of a later window (``lazy``).
        flush_rows
            For ``slow``: the most results in a batch of all shards.
        flush_windows
            For ``lazy``: the number of later windows with whose end a result leaves at the latest.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        WindowedStream

        Raises
        ------
        OptionError
            Saying which of these is wrong, and what to write.
        SchemaError
            The stream does not have every row once, or the windows before it do not go with this one.

        Notes
        -----
        Over windows that are given again, the key of the results is that of the groups, and ``window_id``.

        Examples
        --------
        >>> means = stream.window("15 minutes", slide="1 minute").agg(speed=us.avg("speed"))
        >>> days = stream.window("1 day", zone="Europe/Paris", output="all").agg(rows=us.count())
        >>> last = stream.window("1000 rows", slide="100 rows", of="stream").agg(rows=us.count())
        """
        before, group, late = self.plan, group_argument("window", self.plan, by), late_argument(late_location)
        numbered = of == "stream"
        others = {
            f"of={of!r}": of != "key", f"order={order!r}": order is not None, "method": method != "auto",
            "tombstones": tombstones != "fail", "flush": flush != "eager",
        }  # fmt: skip
        again = counts_again(before, output, others)
        windows, by_rows = windows_asked(duration, slide, origin, zone, of=of, order=order)
        plan = WindowPlan(
            key=group or before.key, update_key=None if group is None else before.key,
            time=NUMBER if numbered else None if by_rows else time_of(before, "windows by time"),
            time_format=time_format, time_zone=time_zone, windows=windows, aggregates={},
            emit=emit_for(output, early=early), method="paned" if method == "auto" else method,
            lateness_us=duration_argument("allowed_lateness", allowed_lateness), shards=shards,
            schema=before.arrow.append(pa.field(NUMBER, pa.int64())) if numbered else before.arrow,
            tombstones=tombstones, flush=flush, flush_rows=flush_rows_each(flush, flush_rows, shards, ResultsFlush),
            flush_windows=flush_windows,
        )  # fmt: skip
        if again:
            plan = dataclasses.replace(plan, windows=windows_of_groups(duration, slide, origin, zone), update_key=None)
            return WindowedStream(self, group_windows(before, plan, late))
        return WindowedStream(self, KeyWindows(before, plan, late, method == "auto"))

    def session_window(
        self,
        gap: str,
        *,
        by: str | Sequence[str] | None = None,
        output: Literal["latest", "all"] = "latest",
        early: bool = False,
        allowed_lateness: str = "0 seconds",
        late_location: str | os.PathLike[str] | None = None,
        time_format: str | None = None,
        time_zone: str = "UTC",
        tombstones: Tombstones = "fail",
        shards: int = 16,
    ) -> WindowedStream[Self]:
        """Open session windows of each key: runs of rows no further apart than a gap, to be aggregated by
        :meth:`~upstream.api.windows.WindowedStream.agg`.

        Parameters
        ----------
        gap
            The longest time between two neighboring rows of a session, such as ``5 minutes``.
        by
            The columns by which rows have sessions of their own [default: the update key], as for
            :meth:`~upstream.UpdateStream.window`.
        output
            ``latest``: of each key the latest session that is complete. ``all``: every session.
        early
            Also emit interim results of the open session, with ``final = false``.
        allowed_lateness
            How long after a session closed rows for it still count, and its result is given again.
        late_location
            A folder for later rows, as Parquet files; without it they are only counted.
        time_format, time_zone
            How the stream's time is read, as the source's options of these names.
        tombstones
            What becomes of rows that delete their key, as for :meth:`~upstream.UpdateStream.window`.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        WindowedStream

        Raises
        ------
        OptionError
            Saying which of these is wrong, and what to write.
        SchemaError
            The stream does not have every row once, as for :meth:`~upstream.UpdateStream.window`.

        Notes
        -----
        ``window_start`` is the time of the session's first row, and ``window_id`` that time in microseconds since the
        epoch. ``window_end`` is the gap after its last row.

        Guarantee: sessions are a function of the rows, whatever the order of arrival and the batches.

        Examples
        --------
        >>> trips = stream.session_window("15 minutes", output="all").agg(rows=us.count(), top=us.max("speed"))
        """
        if output not in ("latest", "all"):
            raise OptionError(
                f"output={output!r} with session windows",
                expected="'latest' or 'all': which session starts last is known only when it has closed",
            )
        before, group = self.plan, group_argument("session_window", self.plan, by)
        check_complete(before.left_out)
        plan = WindowPlan(
            key=group or before.key, update_key=None if group is None else before.key,
            time=time_of(before, "session windows"), time_format=time_format, time_zone=time_zone,
            windows=sessions_asked(gap), aggregates={}, emit=emit_for(output, early=early), method="paned",
            lateness_us=duration_argument("allowed_lateness", allowed_lateness), shards=shards, schema=before.arrow,
            tombstones=tombstones,
        )  # fmt: skip
        return WindowedStream(self, KeyWindows(before, plan, late_argument(late_location)))

    def group_by(
        self,
        *columns: str,
        ttl: str | int | None = None,
        tombstone_retention: str | int | None = None,
        shards: int = 16,
    ) -> GroupedStream[Self]:
        """Group the newest row of each key: how many vehicles each route has *now*.

        Parameters
        ----------
        columns
            The columns of the group. A row with a null in one of them is in no group, and is counted.
        ttl
            As for :meth:`join_latest`: how long a row lives. A row that expires leaves its group in that batch.
        tombstone_retention
            As for :meth:`join_latest`: how far the watermark has to pass a deletion before its time is forgotten.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        GroupedStream
            To be aggregated by its method `agg`.

        Raises
        ------
        OptionError
            There is no column, or the number of shards makes no sense.
        SchemaError
            There is no such column, or one of a type that forms no groups.

        Examples
        --------
        >>> now = stream.group_by("vehicle_id").agg(speed=us.avg("speed"))
        """
        groups = open_groups(self.plan, columns, ttl=ttl, tombstone_retention=tombstone_retention, shards=shards)
        return GroupedStream(self, groups)
