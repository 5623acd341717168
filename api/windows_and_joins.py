"""The windows, groups and joins of a stream."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from ..conf.errors import OptionError
from ..conf.options import path_argument
from ..operators import join_steps
from ..operators.group_by import group_windows, open_groups
from ..operators.join_steps import (
    TimeToLive,
    joins_newest_rows,
    latest_limit,
    latest_sides,
    table_sides,
    timed_sides,
)
from ..operators.joins.band import Interval, JoinTimeRange, band_of, distance_of, reach_back, tumbling_band
from ..operators.joins.latest_plan import LatestJoinPlan, LatestSide
from ..operators.joins.plan import AsOfHow, AsOfPlan, How, JoinOutput, JoinPlan, Shards, shards_for
from ..operators.joins.release.choice import OrderedRelease, release_plan
from ..operators.runtime.ticks import flush_rows_each
from ..operators.step_arguments import columns_of_on
from ..operators.tables.lookup import TableHow, planned
from ..operators.window_steps import KeyWindows, group_argument, over_revisions, time_of
from ..operators.windows.emission import Emission, Output, ResultsFlush, emission_for, emit_for
from ..operators.windows.parse import (
    Lateness,
    Windower,
    lateness_for,
    sessions_asked,
    windower_for,
    windows_asked,
    windows_of_groups,
)
from ..operators.windows.shards.plan import NUMBER, Tombstones, WindowPlan
from ..plan.nodes import Node, check_complete
from ..plan.properties import identity_of
from .steps import StreamSteps, plan_of
from .windows import GroupedStream, WindowedStream

if TYPE_CHECKING:
    from typing_extensions import Self


class WindowsAndJoins(StreamSteps):
    """Windows, groups and joins: part of :class:`~upstream.UpdateStream`."""

    def join(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        within: str | int | Interval | Windower | None = None,
        how: How = "inner",
        condition: str | None = None,
        emit: JoinOutput | Literal["ordered"] | Emission | OrderedRelease = "all",
        suffix: str = "_right",
        shards: int | Shards = 16,
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
            The most time between rows that meet: ``"2 minutes"``, or for each direction
            ``us.Interval(before="2 minutes", after="3 minutes")``. With ``us.Windower("1 minute")``, rows meet if they
            are in one window of this length. It is optional in joins of newest rows.
        how
            ``inner``, ``left``, ``right``, ``full``; ``semi`` and ``anti`` give rows of the left that have a partner,
            or have none.
        condition
            A further condition on pairs, in SQL: ``"l.price > r.limit"``.
        emit
            ``all`` emits each pair once. ``latest``, not for `semi` and `anti`, emits of each key and batch the newest
            pair. ``ordered`` releases the results of each key in the order of their times, and
            ``us.OrderedRelease(…)`` chooses how; `state_limit` does not bound results that wait.

            ``us.Emission("all", early=True)``, for ``left``, ``right``, ``full`` and ``anti``, emits a row without a
            partner in the batch in which it arrives. When it meets its first partner, a tombstone removes it in the
            same commit.
        suffix
            Added to names of columns of the right that the left has too.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.
            ``us.Shards(16, state_limit="512 MB")`` also bounds the state.

        Returns
        -------
        UpdateStream
            Of pairs: the columns of `on`, those of the left, those of the right, ``join_time``, and with ``all`` the
            row numbers ``left_row`` and ``right_row``. Its key is `on`, its time ``join_time``, the later of the two
            times. For `semi` and `anti`, rows of the left as they are.

            With early results and ``all``, the key includes ``left_row`` and ``right_row`` (-1 for no row), so the
            table keeps all results. For `anti`, the key is that of the left and ``left_row``.

        Raises
        ------
        OptionError
            An argument makes no sense, or a stream has no watermark.
        SchemaError
            A column does not exist, the streams differ in its type or in their unit of time, or one leaves rows out.

        Notes
        -----
        Guarantee: each pair is emitted once, and each row without a partner once, in any order of arrival and any
        batches. Late rows are excepted.

        Tombstones end the query. A row with a null in `on` meets nothing.

        If both inputs have only newest rows, such as results that are retracted, their newest rows are joined, with the
        update keys of :meth:`join_latest`. All results are early, and `emit` is not given.

        Examples
        --------
        >>> near = us.Interval(before="2 minutes", after="3 minutes")
        >>> both = stream.join(other, on="vehicle_id", within=near)
        >>> in_order = stream.join(other, on="vehicle_id", within=near, emit="ordered")
        """
        right = plan_of("join", other)

        def band_for(unit: int | None) -> JoinTimeRange:
            return tumbling_band(_tumbling(within), unit) if isinstance(within, Windower) else band_of(within, unit)

        if joins_newest_rows(self.plan, right):
            if emit != "all":
                raise OptionError(
                    f"join(emit={emit!r}) of newest rows",
                    expected="emit='all': results are emitted early, and retracted",
                    hint="leave emit out",
                )
            (one, two), band, unit = table_sides(self.plan, right, on, None if within is None else band_for)
            return self._newest_pairs(
                right, one, two, how, suffix, shards, band=band, unit_us=unit, condition=condition
            )
        one, two, unit = timed_sides(self.plan, right, on)
        band = band_for(unit)
        release = OrderedRelease() if emit == "ordered" else emit if isinstance(emit, OrderedRelease) else None
        also = ", 'ordered', us.OrderedRelease(…)"
        emission = emission_for("join", emit if release is None else "all", ("all", "latest"), also=also)
        parts = shards_for(shards)
        plan = JoinPlan(
            one, two, band, how=how, output="latest" if emission.results == "latest" else "all", condition=condition,
            suffix=suffix, unit_us=unit, shards=parts.number, state_limit=parts.limit, on_limit=parts.on_limit,
            release=None if release is None else release_plan(release, reach_back(band), unit), early=emission.early,
        )  # fmt: skip
        return self._of(join_steps.join(self.plan, right, plan, release is not None and release.dead_letters))

    def join_as_of(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: AsOfHow = "inner",
        tolerance: str | int | None = None,
        emit: Literal["all"] | Emission = "all",
        suffix: str = "_right",
        shards: int | Shards = 16,
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
        tolerance
            How much older the row of the right may be [default: any age].
        emit
            ``us.Emission(early=True)`` emits a row in the batch in which it arrives, with the newest partner so far,
            and re-emits it when a better one arrives.
        suffix, shards
            As for :meth:`join`. A limit of the state does not go with early results. A row whose partner may have been
            dropped is in no result.

        Returns
        -------
        UpdateStream
            Rows of the left with the columns of the right. Its key and its time are those of the left. If they are
            early, ``left_row``, the number of the left's row, is part of the key, so the table keeps all results.

        Raises
        ------
        OptionError
            An argument makes no sense, or a stream has no watermark.
        SchemaError
            A column does not exist, the streams differ in its type or in their unit of time, or one leaves rows out.

        Notes
        -----
        Guarantee: the partner is the row of the right with the greatest time at or before that of the left's row.
        Between equal times, the later arrival counts. Each row of the left is emitted once. A late row meets what is
        still kept.

        Examples
        --------
        >>> valued = stream.join_as_of(other, on="vehicle_id", tolerance="1 hour")
        """
        right = plan_of("join_as_of", other)
        one, two, unit = timed_sides(self.plan, right, on)
        parts = shards_for(shards)
        plan = AsOfPlan(
            one, two, how=how, tolerance=None if tolerance is None else distance_of("tolerance", tolerance, unit),
            suffix=suffix, unit_us=unit, shards=parts.number, early=emission_for("join_as_of", emit, ("all",)).early,
            state_limit=parts.limit, on_limit=parts.on_limit,
        )  # fmt: skip
        return self._of(join_steps.join_as_of(self.plan, right, plan))

    def join_latest(
        self,
        other: Self,
        *,
        on: str | Sequence[str] | Mapping[str, str],
        how: How = "inner",
        suffix: str = "_right",
        ttl: TimeToLive = None,
        tombstone_retention: str | int | None = None,
        shards: int | Shards = 16,
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
            nulls; ``semi`` or ``anti``, as for :meth:`join`.
        suffix
            Added to names of columns of the right that the left has too.
        ttl
            How long a row lives, such as ``1 hour``; a pair gives it for the left and the right, None for no end
            [default]. A row expires when the low-watermark of its own stream passes its event time by this. You can
            change it with a restart.
        tombstone_retention
            How far a stream's watermark has to pass a deletion before it is forgotten, such as ``7 days`` [default:
            never]. An older row that arrives after that counts as new.
        shards
            As for :meth:`join`. A query ends at the limit of its state: ``on_limit`` is ``fail``.

        Returns
        -------
        UpdateStream
            Pairs, and tombstones for removed pairs, with the columns of `on`, both sides, and ``join_time``, the later
            of the two times. The stream has no event time: what arrives later is newer.

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
        return self._newest_pairs(right, one, two, how, suffix, shards)

    def _newest_pairs(
        self,
        right: Node,
        one: LatestSide,
        two: LatestSide,
        how: How,
        suffix: str,
        shards: int | Shards,
        **meeting: Any,
    ) -> Self:
        parts = shards_for(shards)
        plan = LatestJoinPlan(one, two, how, suffix, parts.number, latest_limit(parts, (one, two)), **meeting)
        return self._of(join_steps.join_latest(self.plan, right, plan))

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
            The columns of the table to add to the rows [default: all except those in `on`].
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
        duration: str | Windower,
        slide: str | None = None,
        *,
        zone: str | None = None,
        by: str | Sequence[str] | None = None,
        event_time: str | None = None,
        emit: Output | Emission = "latest",
        lateness: str | Lateness = "0 seconds",
        tombstones: Tombstones = "fail",
        shards: int = 16,
    ) -> WindowedStream[Self]:
        """Open windows of each key on the stream's time, to be aggregated by
        :meth:`~upstream.api.windows.WindowedStream.agg`.

        Parameters
        ----------
        duration
            RANGE, the length of a window: ``10 minutes``; with `zone` also ``1 day``, ``1 month``. ``all`` for
            everything so far, every `slide`. ``100 rows`` for the last rows of each key, in the order of arrival. Such
            windows close with their last row. :class:`~upstream.Windower` has more kinds of windows.
        slide
            SLIDE, the distance between windows [default: `duration`, windows that tumble]. ``1 row`` for a window by
            time that ends with each row of its key.
        zone
            The time zone whose calendar the windows follow, such as ``Europe/Paris`` [default: fixed durations].
        by
            The columns by which rows have windows of their own, and the results' key [default: the update key]. Every
            row has to have them. They are not fractions, which look equal and differ.
        event_time
            The column that places results in windows, if they are retracted [default: the stream's event time].
        emit
            ``latest``: of each key the latest complete window. ``all``: every window that has a row. ``eager``: each
            key's latest started window, and no other until it closes. ``us.Emission("all", early=True)`` also emits
            interim results of the open window, with ``final = false``.
        lateness
            The time after a window's end in which late rows still count. Its result is then emitted again.
            ``us.Lateness("5 minutes", dead_letters=True)`` writes later rows to the dead-letter table. They are counted
            in any case.
        tombstones
            Rows that delete their key ``fail`` the query, or are counted and left out (``drop``).
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.

        Returns
        -------
        WindowedStream

        Raises
        ------
        OptionError
            An argument makes no sense, or two do not go together.
        SchemaError
            The stream does not have every row once, or the windows before it do not go with this one.

        Notes
        -----
        Over windows that are re-emitted, the key of the results is that of the groups, and ``window_id``. So it is over
        results that are retracted. There, each key counts in the windows of its newest row, and all results are early,
        as for ``group_by(…).window(…, newest="table")``.

        Examples
        --------
        >>> means = stream.window("15 minutes", slide="1 minute").agg(speed=us.avg("speed"))
        >>> days = stream.window("1 day", zone="Europe/Paris", emit="all").agg(rows=us.count())
        >>> last = stream.window(us.Windower("1000 rows", slide="100 rows", of="stream")).agg(rows=us.count())
        """
        before, group = self.plan, group_argument("window", self.plan, by)
        if before.retracts and identity_of(before) is None:
            if tombstones != "fail":
                raise OptionError(f"tombstones={tombstones!r} after results that are retracted", expected="left out")
            every: Any = "all" if emit == "latest" else emit
            return self.group_by(*(group or before.key), shards=shards).window(
                duration, slide, zone=zone, newest="table", event_time=event_time, emit=every, lateness=lateness
            )
        if event_time is not None:
            raise OptionError(
                f"window(…, event_time={event_time!r}) over results that are final",
                expected="the stream's event time",
                hint="name it where the stream is made",
            )
        asked, late = windower_for(duration, slide, zone), lateness_for(lateness)
        emission = emission_for("window", emit, ("latest", "all", "eager"), flush=True)
        numbered = asked.of == "stream"
        others = {
            f"of={asked.of!r}": numbered, f"order={asked.order!r}": asked.order is not None,
            "method": asked.method != "auto", "tombstones": tombstones != "fail", "flush": emission.flush != "eager",
        }  # fmt: skip
        revised = over_revisions(before, emission.results, others)
        windows, by_rows = windows_asked(asked)
        plan = WindowPlan(
            key=group or before.key, update_key=None if group is None else before.key,
            time=NUMBER if numbered else None if by_rows else time_of(before, "windows by time"),
            time_format=before.time_format.format, time_zone=before.time_format.zone, windows=windows, aggregates={},
            emit=emit_for(emission), method="paned" if asked.method == "auto" else asked.method,
            lateness_us=late.allowed_us, shards=shards,
            schema=before.arrow.append(pa.field(NUMBER, pa.int64())) if numbered else before.arrow,
            tombstones=tombstones, flush=emission.flush, flush_windows=emission.flush_windows,
            flush_rows=flush_rows_each(emission.flush, emission.flush_rows, shards, ResultsFlush),
        )  # fmt: skip
        if revised:
            plan = dataclasses.replace(plan, windows=windows_of_groups(asked), update_key=None)
            return WindowedStream(self, group_windows(before, plan, late.dead_letters))
        return WindowedStream(self, KeyWindows(before, plan, late.dead_letters, asked.method == "auto"))

    def session_window(
        self,
        gap: str,
        *,
        by: str | Sequence[str] | None = None,
        emit: Literal["latest", "all"] | Emission = "latest",
        lateness: str | Lateness = "0 seconds",
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
        emit
            ``latest``: of each key the latest session that is complete. ``all``: every session.
            ``us.Emission("all", early=True)`` also emits interim results of the open session, with ``final = false``.
        lateness
            The time after a session's end in which late rows still count. Its result is then emitted again.
            ``us.Lateness("5 minutes", dead_letters=True)`` writes later rows to the dead-letter table.
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
            An argument makes no sense, or two do not go together.
        SchemaError
            The stream does not have every row once, as for :meth:`~upstream.UpdateStream.window`.

        Notes
        -----
        ``window_start`` is the time of the session's first row, and ``window_id`` that time in microseconds since the
        epoch. ``window_end`` is the gap after its last row.

        Guarantee: sessions are a function of the rows, whatever the order of arrival and the batches.

        Examples
        --------
        >>> trips = stream.session_window("15 minutes", emit="all").agg(rows=us.count(), top=us.max("speed"))
        """
        before, group = self.plan, group_argument("session_window", self.plan, by)
        emission, late = emission_for("session_window", emit, ("latest", "all")), lateness_for(lateness)
        check_complete(before.left_out)
        plan = WindowPlan(
            key=group or before.key, update_key=None if group is None else before.key,
            time=time_of(before, "session windows"), time_format=before.time_format.format,
            time_zone=before.time_format.zone, windows=sessions_asked(gap), aggregates={}, emit=emit_for(emission),
            method="paned", lateness_us=late.allowed_us, shards=shards, schema=before.arrow, tombstones=tombstones,
        )  # fmt: skip
        return WindowedStream(self, KeyWindows(before, plan, late.dead_letters))

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


def _tumbling(windower: Windower) -> str | int:
    """Return the length of the windows in which rows of a join meet."""
    if windower != Windower(windower.duration):
        raise OptionError(
            f"within={windower!r}",
            expected="a duration alone, such as us.Windower('1 minute'): windows that tumble from the epoch",
            hint="leave the other arguments out",
        )
    return windower.duration
