"""The joins of a stream: with another stream by time or by its newest rows, and with a table."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..conf.options import bytes_argument, path_argument
from ..operators import join_steps
from ..operators.join_steps import TimeToLive, latest_limit, latest_sides, timed_sides
from ..operators.joins.band import Interval, band_of, distance_of, reach_back
from ..operators.joins.latest_plan import LatestHow, LatestJoinPlan
from ..operators.joins.plan import AsOfHow, AsOfPlan, How, JoinOutput, JoinPlan, OnLimit
from ..operators.joins.release.choice import OutputOrder, Release, release_plan
from ..operators.step_arguments import columns_of_on, late_argument
from ..operators.tables.lookup import TableHow, planned
from .steps import StreamSteps, plan_of

if TYPE_CHECKING:
    from typing_extensions import Self


class StreamJoins(StreamSteps):
    """Joins: part of :class:`~upstream.UpdateStream`."""

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
        late_location: str | os.PathLike[str] | None = None,
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
        late_location
            With `output_order`: a folder for results that come too late for the order; without it they are only
            counted.
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
            output_order, release, output=output, cost=cost, alpha=alpha, late_location=late_location,
            window=reach_back(band), unit_us=unit,
        )  # fmt: skip
        plan = JoinPlan(
            one, two, band, how=how, output=output, condition=condition, suffix=suffix, unit_us=unit, shards=shards,
            state_limit=bytes_argument("state_limit", state_limit), on_limit=on_limit, release=order, early=early,
        )  # fmt: skip
        return self._of(join_steps.join(self.plan, right, plan, late_argument(late_location)))

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
