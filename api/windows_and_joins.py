"""The windows, groups and joins of a stream."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ..conf.errors import OptionError
from ..conf.options import bytes_argument, duration_argument, late_argument, path_argument
from ..operators import join_steps
from ..operators.group_by import group_windows, open_groups
from ..operators.join_steps import TimeToLive, latest_limit, latest_sides, timed_sides
from ..operators.joins.band import Interval, band_of, distance_of, reach_back
from ..operators.joins.latest_plan import LatestHow, LatestJoinPlan
from ..operators.joins.plan import AsOfHow, AsOfPlan, How, JoinOutput, JoinPlan, OnLimit
from ..operators.joins.release.choice import OutputOrder, Release, release_plan
from ..operators.runtime.ticks import flush_rows_each
from ..operators.step_arguments import columns_of_on
from ..operators.tables.lookup import TableHow, planned
from ..operators.window_steps import KeyWindows, WindowMethod, counts_again, group_argument, time_of
from ..operators.windows.emission import Output, emit_for
from ..operators.windows.parse import RowOrder, RowsOf, sessions_asked, windows_asked, windows_of_groups
from ..operators.windows.shards.plan import NUMBER, ResultsFlush, Tombstones, WindowPlan
from ..plan.nodes import check_complete
from .steps import StreamSteps, plan_of
from .windows import GroupedStream, WindowedStream

if TYPE_CHECKING:
    import datetime as dt

    from typing_extensions import Self


class WindowsAndJoins(StreamSteps):
    """Windows, groups and joins: part of :class:`~upstream.UpdateStream`."""

    def join(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        within: Interval | None = None,
        tumbling: str | int | None = None,
        how: How = "inner",
        output: JoinOutput = "all",
        early: bool = False,
        condition: str | None = None,
        suffix: str = "_right",
        time_format: str | None = None,
        state_limit: str | int | None = None,
        on_limit: OnLimit = "fail",
        output_order: OutputOrder | None = None,
        release: Release | None = None,
        cost: float | None = None,
        alpha: float | None = None,
        set_aside: Literal["late"] | None = None,
        shards: int = 16,
    ) -> Self:
        """Join two streams by key and time (OA-Join, thesis §7.1).

        Each row is kept until the watermark of the *other* stream has passed the last time at which it can meet a row.
        Rows may come in any order.

        Parameters
        ----------
        other
            The right stream.
        on
            The columns that are equal in rows that meet; a mapping names those of the left and of the right. They need
            not be the update keys.
        within
            How far apart in time rows may be that meet: ``us.interval(before="2 minutes", after="3 minutes")``.
        tumbling
            The length of windows, in place of `within`: rows meet if they lie in one window.
        how
            ``inner``, ``left``, ``right``, ``full``; ``semi`` and ``anti`` give rows of the left that have a partner,
            or have none.
        output
            ``all`` gives each pair once. ``latest``, not for `semi` and `anti`, gives of each key and batch the newest
            pair.
        early
            For ``left``, ``right``, ``full`` and ``anti``: give a row without a partner in the batch in which it
            arrives. When it meets its first partner, a tombstone removes it in the same commit.
        condition
            A further condition on pairs, in SQL: ``"l.price > r.limit"``.
        suffix
            Added to names of columns of the right that the left has too.
        time_format
            What a time column of whole numbers counts, such as ``epoch_ms``; without it `within` takes whole numbers.
        state_limit
            The most bytes that the join keeps, in equal parts for its shards, such as ``"512 MB"``. You can change both
            limits with a restart.
        on_limit
            ``fail`` ends the query at the limit. ``drop_oldest`` drops the rows with the oldest event times, and counts
            them.
        output_order
            ``event_time`` releases the results of each key in the order of their times, which `state_limit` does not
            bound [default: as soon as they are found].
        release
            For `output_order`: ``filter`` [default] holds results, ``sync`` holds rows, and ``adaptive`` chooses: it
            holds results while `cost` times the window times both arrival rates is at least `alpha`.
        cost
            For ``adaptive``: seconds to compare two rows [default: as measured].
        alpha
            For ``adaptive``: the load from which on results are held [default: 0.3].
        set_aside
            With `output_order` and ``late``, results that come too late for the order go to the dead-letter table;
            without it they are only counted.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        UpdateStream
            Of pairs: the columns of `on`, those of the left, those of the right, ``join_time``, and with ``output=
            "all"`` the row numbers ``left_row`` and ``right_row``. Its key is `on`, its time ``join_time``, the later
            of the two times. For `semi` and `anti`, rows of the left as they are.

            With `early` and ``output="all"``, the key includes ``left_row`` and ``right_row`` (-1 for no row), so the
            table keeps all results. For `anti`, the key is that of the left and ``left_row``.

        Raises
        ------
        OptionError
            An argument makes no sense, or a stream has no watermark.
        SchemaError
            A column does not exist, the two streams differ in its type, or one of them leaves rows out.

        Notes
        -----
        Guarantee: each pair is given once, and each row without a partner once, whatever the order of arrival and the
        batches, for rows that are not late.

        Tombstones end the query. A row with a null in `on` meets nothing.

        Examples
        --------
        >>> near = us.interval(before="2 minutes", after="3 minutes")
        >>> both = stream.join(other, on="vehicle_id", within=near)
        >>> in_order = stream.join(other, on="vehicle_id", within=near, output_order="event_time")
        """
        right = plan_of("join", other)
        one, two, unit = timed_sides(self.plan, right, on, time_format)
        band = band_of(within, tumbling, unit)
        order = release_plan(
            output_order, release, output=output, cost=cost, alpha=alpha, set_aside=set_aside,
            window=reach_back(band), unit_us=unit,
        )  # fmt: skip
        plan = JoinPlan(
            one, two, band, how=how, output=output, condition=condition, suffix=suffix, unit_us=unit, shards=shards,
            state_limit=bytes_argument("state_limit", state_limit), on_limit=on_limit, release=order, early=early,
        )  # fmt: skip
        return self._of(join_steps.join(self.plan, right, plan, late_argument(set_aside)))

    def join_as_of(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: AsOfHow = "inner",
        early: bool = False,
        tolerance: str | int | None = None,
        suffix: str = "_right",
        time_format: str | None = None,
        state_limit: str | int | None = None,
        on_limit: OnLimit = "fail",
        shards: int = 16,
    ) -> Self:
        """Join each row with the row of another stream that was newest at its time.

        A row of the left waits until the watermark of the right has passed it. So the result does not depend on which
        of the two came first.

        Parameters
        ----------
        other
            The right stream: rates, routes, settings. Its tombstones count: at a later time there is no row.
        on
            The columns that are equal in rows that meet; a mapping names those of the left and of the right.
        how
            ``inner``; or ``left``, which gives rows without a partner with nulls.
        early
            Give a row in the batch in which it arrives, with the newest partner so far, and again when a better one
            arrives.
        tolerance
            How much older the row of the right may be [default: any age].
        state_limit, on_limit
            As for :meth:`join`; not with `early`. A row whose partner may have been dropped is in no result.
        suffix, time_format, shards
            As for :meth:`join`.

        Returns
        -------
        UpdateStream
            Rows of the left with the columns of the right. Its key and its time are those of the left. With `early`,
            ``left_row``, the number of the left's row, is part of the key, so the table keeps all results.

        Raises
        ------
        OptionError
            An argument makes no sense, or a stream has no watermark.
        SchemaError
            A column does not exist, the two streams differ in its type, or one of them leaves rows out.

        Notes
        -----
        Guarantee: the partner is the row of the right with the greatest time at or before that of the left's row; of
        two with one time, the later arrival. Each row of the left is given once. A late row meets what is still kept.

        Examples
        --------
        >>> valued = stream.join_as_of(other, on="vehicle_id", tolerance="1 hour")
        """
        right = plan_of("join_as_of", other)
        one, two, unit = timed_sides(self.plan, right, on, time_format)
        plan = AsOfPlan(
            one, two, how=how, tolerance=None if tolerance is None else distance_of("tolerance", tolerance, unit),
            suffix=suffix, unit_us=unit, shards=shards, early=early,
            state_limit=bytes_argument("state_limit", state_limit), on_limit=on_limit,
        )  # fmt: skip
        return self._of(join_steps.join_as_of(self.plan, right, plan))

    def join_latest(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: LatestHow = "inner",
        suffix: str = "_right",
        ttl: TimeToLive = None,
        tombstone_retention: str | int | None = None,
        state_limit: str | int | None = None,
        on_limit: OnLimit = "fail",
        shards: int = 16,
    ) -> Self:
        r"""Join the newest rows of two streams: the table holds the join of both tables as they are now.

        A newer row of either side replaces the pairs of the row before it; a tombstone takes them out.

        Parameters
        ----------
        other
            The right stream.
        on
            The columns that are equal in rows that meet; a mapping names those of the left and of the right. A key
            whose new row has other values leaves its former partners.
        how
            ``inner``, ``left``, ``right`` or ``full``, which give rows of that side, or of both, without a partner with
            nulls.
        suffix
            Added to names of columns of the right that the left has too.
        ttl
            How long a row lives, such as ``1 hour``; a pair gives it for the left and the right, None for no end
            [default]. A row expires when the low-watermark of its own stream passes its event time by this. You can
            change it with a restart.
        tombstone_retention
            How far a stream's watermark has to pass a deletion before it is forgotten, such as ``7 days`` [default:
            never]. An older row that arrives after that counts as new.
        state_limit
            As for :meth:`join`.
        on_limit
            Only ``fail``, which ends the query at the limit.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        UpdateStream
            Of pairs, and of tombstones for pairs that are gone: the columns of `on`, those of the left, those of the
            right, and ``join_time``, the later of the two times. The stream has no event time: what arrives later is
            newer.

            The page on newest rows lists the update keys of all kinds of joins.

        Raises
        ------
        OptionError
            An argument makes no sense, or `ttl` or `tombstone_retention` is set and a stream has no watermark.
        SchemaError
            A column does not exist, the two streams differ in its type, or an update key has no text.

        Notes
        -----
        Guarantee: after each batch the table holds the join of the newest rows that have not expired, whatever the
        order of arrival and the batches. Either input may be coalesced or come from a queue. A row with a null in `on`
        meets nothing.

        Examples
        --------
        >>> now = stream.join_latest(other, on="vehicle_id")
        >>> recent = stream.join_latest(other, on="vehicle_id", how="full", ttl="10 minutes")
        >>> recent.key
        ('vehicle_id',)
        """
        right = plan_of("join_latest", other)
        one, two = latest_sides(self.plan, right, on, ttl, tombstone_retention)
        limit = latest_limit(state_limit, on_limit, (one, two), shards)
        return self._of(join_steps.join_latest(self.plan, right, LatestJoinPlan(one, two, how, suffix, shards, limit)))

    def join_table(
        self,
        table: str | os.PathLike[str],
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: TableHow = "inner",
        columns: Sequence[str] | None = None,
        suffix: str = "_table",
        storage: Mapping[str, str] | None = None,
    ) -> Self:
        """Join each row with the row of a Delta table that has its key.

        Each batch reads the version that the table has when the batch is planned.

        Parameters
        ----------
        table
            The folder of any Delta table, or its address.
        on
            The columns that are equal; a mapping names those of the stream and those of the table.
        how
            ``inner``, ``left``, ``semi`` or ``anti``.
        columns
            Of the table, to be added to the rows; by default all that are not joined by.
        suffix
            Added to names of columns of the table that the stream has too.
        storage
            Options for the table's object store.

        Returns
        -------
        UpdateStream
            Rows of the stream with the columns of the table. Their key and their time are those of the stream.

        Raises
        ------
        OptionError
            An argument makes no sense.
        SchemaError
            A column does not exist, or two that are compared differ in type.
        TableError
            There is no table; or, when the query runs, a key is in several rows of it.

        Notes
        -----
        Guarantee: a batch that runs again reads the same version. A new version of the table revises no earlier result.
        Punctuation and tombstones pass. Each Python worker keeps the columns that are joined in memory.

        Examples
        --------
        >>> named = stream.join_table("vehicles", on="vehicle_id", how="left", columns=["model"])
        """
        options = dict(storage or {})
        location, rows = self._table(path_argument("table", table), options)
        plan = planned(self.plan.arrow, rows, location, columns_of_on(on), how, columns, suffix, options)
        return self._of(join_steps.join_table(self.plan, plan))

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
        set_aside: Literal["late"] | None = None,
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
        set_aside
            With ``late``, later rows go to the dead-letter table; without it they are only counted.
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
        before, group, late = self.plan, group_argument("window", self.plan, by), late_argument(set_aside)
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
        set_aside: Literal["late"] | None = None,
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
        set_aside
            With ``late``, later rows go to the dead-letter table; without it they are only counted.
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
        return WindowedStream(self, KeyWindows(before, plan, late_argument(set_aside)))

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
