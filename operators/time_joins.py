"""Joins of two streams by time."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, get_args

from ..conf.errors import OptionError
from ..conf.options import bytes_argument, count_argument, path_argument, text_argument
from ..plan.nodes import IncompleteInput, TimeJoin
from .joins.band import LEFT, Interval, band_of, distance_of, reach_back, unit_of
from .joins.pairs import pair_condition
from .joins.plan import AsOfHow, AsOfPlan, How, JoinOutput, JoinPlan, JoinSide, OnLimit
from .joins.release.choice import OutputOrder, Release, release_plan
from .keyed_stream import KeyedRows
from .step_arguments import (
    check_early,
    check_early_as_of,
    check_on_limit,
    check_partner,
    check_row_number,
    columns_of_on,
    schemas_of,
    time_of,
)

if TYPE_CHECKING:
    from typing_extensions import Self


class TimeJoinSteps(KeyedRows):
    """Joins by time: part of :class:`~upstream.operators.stream.UpdateStream`."""

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
        check_partner("join", other)
        if how not in get_args(How):
            raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(How)), hint="correct how")
        if output not in get_args(JoinOutput) or (how in ("semi", "anti") and output != "all"):
            raise OptionError(
                f"output={output!r} with how={how!r}",
                expected="'all', or 'latest' for a join that gives pairs",
                hint="correct output",
            )
        columns = columns_of_on(on)
        sides, unit = self._timed_sides(other, columns, time_format)
        band = band_of(within, tumbling, unit)
        plan = JoinPlan(
            *sides,
            band,
            how=how,
            output=output,
            condition=text_argument("condition", condition),
            suffix=text_argument("suffix", suffix) or "_right",
            unit_us=unit,
            shards=count_argument("shards", shards),
            state_limit=bytes_argument("state_limit", state_limit),
            on_limit=check_on_limit(on_limit),
            release=release_plan(
                output_order, release, output=output, cost=cost, alpha=alpha, late_location=late_location,
                window=reach_back(band), unit_us=unit,
            ),
            early=early,
        )  # fmt: skip
        check_early(plan)
        pair_condition(plan)  # refuses an invalid condition
        late = None if late_location is None else path_argument("late_location", late_location)
        return self._joined(other, plan, late)

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
        columns = columns_of_on(on)
        check_partner("join_as_of", other)
        if how not in get_args(AsOfHow):
            raise OptionError(f"how={how!r}", expected="one of " + ", ".join(get_args(AsOfHow)), hint="correct how")
        sides, unit = self._timed_sides(other, columns, time_format)
        plan = AsOfPlan(
            *sides,
            how=how,
            tolerance=None if tolerance is None else distance_of("tolerance", tolerance, unit),
            suffix=text_argument("suffix", suffix) or "_right",
            unit_us=unit,
            shards=count_argument("shards", shards),
            early=early,
            state_limit=bytes_argument("state_limit", state_limit),
            on_limit=check_on_limit(on_limit),
        )
        check_early_as_of(plan, self.key)
        if plan.tolerance is not None and plan.tolerance < 0:
            raise OptionError(f"tolerance={tolerance!r}", expected="a duration, not negative", hint="correct tolerance")
        from pyspark.sql.pandas.types import from_arrow_schema

        left_out: IncompleteInput | None = None
        if early:
            left_out = IncompleteInput(
                "join_as_of(early=True) gives rows with the partner that is newest so far, and revises them",
                "leave out early: a row then waits until its partner is final",
            )
        return self._of(
            TimeJoin(
                (*self.key, *plan.own_key), self.event_time, from_arrow_schema(plan.schema), left_out, False,
                plan.shards if self.key == plan.left.on and not early else None,
                inputs=(self.plan, other.plan), specification=plan,
                keeping=plan.keeps,
                early=early, newest_key=self.key if early and how == "left" else None,
            )
        )  # fmt: skip

    def _timed_sides(
        self, other: KeyedRows, on: Mapping[str, str], time_format: str | None
    ) -> tuple[tuple[JoinSide, JoinSide], int | None]:
        """Return both sides of a join by time, and the unit of the times in microseconds."""
        times = [time_of(each, name) for each, name in ((self, "left"), (other, "right"))]
        left, right = schemas_of(self, other, on, "join", {times[0]: times[1]})
        unit = unit_of(times[0], left.field(times[0]).type, text_argument("time_format", time_format))
        sides = (
            JoinSide(names, time, schema, stream.key)
            for names, time, schema, stream in zip(
                (tuple(on), tuple(on.values())), times, (left, right), (self, other), strict=True
            )
        )
        one, two = sides
        return (one, two), unit

    def _joined(self, other: KeyedRows, plan: JoinPlan, late: str | None) -> Self:
        from pyspark.sql.pandas.types import from_arrow_schema

        left_out: IncompleteInput | None = None
        if plan.output == "latest":
            left_out = IncompleteInput(
                "join(output='latest') gives the newest pair of each key only",
                "join with output='all'",
            )
        elif plan.early:
            left_out = IncompleteInput(
                "join(early=True) gives rows without a partner at once, and takes them back when they meet one",
                "leave out early: such a row then comes once no partner can come",
            )
        key, as_it_is = plan.key, plan.left_alone and not plan.early
        if plan.left_alone:
            check_row_number(plan.own_key, self.key)
        return self._of(
            TimeJoin(
                key, plan.time, self.schema if as_it_is else from_arrow_schema(plan.schema), left_out, False,
                plan.shards if key == plan.sides[LEFT].on else None,
                inputs=(self.plan, other.plan), specification=plan, keeping=plan.keeps,
                late_location=late,
                early=plan.early, newest_key=plan.left.on if plan.early and not plan.left_alone else None,
            )
        )  # fmt: skip
