"""Steps that keep state on Spark: queues and windows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError
from ..conf.options import (
    column_argument,
    count_argument,
    duration_argument,
    names_argument,
    path_argument,
    text_argument,
)
from ..core.rows.event_times import check_time_zone
from ..core.rows.text import check_collations
from ..plan.nodes import IncompleteInput, Queue, check_complete
from ..plan.properties import check_final, check_promised, identity_of
from .grouped_windows import WindowedGroupsStream, WindowOptions, group_windows
from .keyed_stream import KeyedRows
from .queue.control import ShardPlan, is_duration
from .queue.queue import Policy, check_policy
from .queue.tick_planner import check_budget
from .runtime.ticks import flush_rows_each
from .step_arguments import check_group_columns
from .window_stream import WindowedStream
from .windows.emission import Output, emit_for
from .windows.parse import RowOrder, RowsOf, windows_asked
from .windows.shards.plan import ResultsFlush, Tombstones, check_method, check_tombstones

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import Column
    from typing_extensions import Self


_FIRST_BUDGET = 2_000


class Stateful(KeyedRows):
    """Queues and windows: part of :class:`~upstream.operators.stream.UpdateStream`."""

    def queue(
        self,
        *,
        policy: Policy = "in-place",
        budget: int | Literal["auto"] | None = "auto",
        batch_duration: str | None = None,
        shards: int = 16,
        weight: str | Column | None = None,
        access_interval: str | Column | None = None,
        cost: str | None = None,
        half_life: str = "60 seconds",
        seed: int = 0,
        most_stale: int = 0,
    ) -> Self:
        """Queue the rows beyond a batch's budget; newer rows supersede waiting ones of their key (tr620 §4-5).

        Parameters
        ----------
        policy
            ``in-place``: the stalest key first. ``linecutting``: keys that seldom update first. ``auto``: every row
            while the load allows, else linecutting. ``fifo``, ``append``, ``shed``: for comparison.
        budget
            The most rows that a batch processes. ``auto`` chooses the number that gives the least staleness, or that
            takes `batch_duration`; None processes all.
        batch_duration
            The intended duration of a batch, such as ``2 seconds``; for ``budget="auto"``.
        shards
            The number of parts of the keys; fixed for the life of a checkpoint. As many as the table's buckets is best.
        weight
            A column or SQL expression: the factor by which a key's staleness counts.
        access_interval
            A duration (``10 seconds``), or a column or SQL expression of seconds: no key yields two results within it.
        cost
            The time to process one row, as a duration (``0.5 ms``) [default: as measured].
        half_life
            The half-life of the update rates by which linecutting decides.
        seed
            The seed of the policy ``shed``.
        most_stale
            The number of longest-waiting keys that each batch reports, for :func:`upstream.most_stale`.

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
        check_policy(policy)
        check_budget(budget)
        count_argument("shards", shards)
        count_argument("most_stale", most_stale, least=0)
        count_argument("seed", seed, least=0)
        column_argument("weight", weight)
        column_argument("access_interval", access_interval)
        auto = budget == "auto"
        first = _FIRST_BUDGET if auto else budget
        plan = ShardPlan(
            key=self.key,
            time=self.event_time,
            shards=shards,
            policy=policy,
            budget=first if isinstance(first, int) else None,
            auto=auto,
            half_life_s=_seconds("half_life", half_life),
            cost_s=None if cost is None else _seconds("cost", cost),
            seed=seed,
            most_stale=most_stale,
        )
        if isinstance(weight, str):
            self._check_expression(weight)
        if isinstance(access_interval, str) and not is_duration(access_interval):
            self._check_expression(access_interval)
        options = {
            "auto": str(auto).lower(),
            **({} if plan.budget is None else {"budget": str(plan.budget)}),
            **({} if batch_duration is None else {"duration": str(_seconds("batch_duration", batch_duration))}),
            **({} if plan.cost_s is None else {"cost": str(plan.cost_s)}),
        }
        if policy == "shed":
            check_final(
                self.plan,
                "queue(policy='shed')",
                "would drop some of the rows that take results back",
                "take another policy, such as in-place",
            )
        left_out = self.plan.left_out
        if policy != "append":
            left_out = IncompleteInput(
                f"queue(policy={policy!r}) leaves rows out, superseded ones mostly (covered > 1 says so)",
                'put the window before the queue, or give the queue policy="append"',
            )
        return self._of(
            Queue(
                self.key, self.event_time, self.schema, left_out, False, shards,
                inputs=(self.plan,), specification=plan, options=options, weight=weight,
                access_interval=access_interval,
            )
        )  # fmt: skip

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
        method: Literal["auto", "wid", "paned", "adaptive", "buffering"] = "auto",
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
        :meth:`~upstream.operators.window_stream.WindowedStream.agg`.

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
        self._check_key_columns("window")
        group = self._group_argument("window", by)
        emit = emit_for(output, early=early)
        check_method(method)
        check_tombstones(tombstones)
        revised = (
            identity_of(self.plan) if isinstance(self.plan.left_out, IncompleteInput) and output == "all" else None
        )
        if revised is not None and set(revised) > set(self.key):
            return WindowedStream(
                self,
                {},
                self._over_revised(
                    WindowOptions(
                        duration=duration, slide=slide, early=early, allowed_lateness=allowed_lateness,
                        late_location=late_location, origin=origin, zone=zone, time_format=time_format,
                        time_zone=time_zone,
                    ),
                    {
                        f"of={of!r}": of != "key", f"order={order!r}": order is not None, "method": method != "auto",
                        "tombstones": tombstones != "fail", "flush": flush != "eager",
                    },
                    group or self.key, shards,
                ),
            )  # fmt: skip
        check_complete(self.plan.left_out)
        check_time_zone("time_zone", time_zone)
        count_argument("shards", shards)
        each = flush_rows_each(flush, flush_rows, shards, ResultsFlush)
        count_argument("flush_windows", flush_windows)
        if flush != "lazy" and flush_windows != 1:
            raise OptionError(
                f"flush_windows={flush_windows} with flush={flush!r}", expected="flush_windows with flush='lazy' only"
            )
        text_argument("zone", zone)
        text_argument("time_format", time_format)
        windows, by_rows = windows_asked(duration, slide, origin, zone, of=of, order=order)
        if not by_rows:
            if self.event_time is None:
                raise OptionError(
                    "windows by time on a stream without a time",
                    expected="UpdateStream(df, key=…, event_time=…)",
                    hint="name the time column",
                )
            check_promised(self.plan, "windows by time", "; windows of rows (window('100 rows')) need none")
        return WindowedStream(
            self,
            {
                "windows": windows,
                "by": group,
                "time": not by_rows,
                "of": of,
                "emit": emit,
                "method": method,
                "lateness_us": duration_argument("allowed_lateness", allowed_lateness),
                "late_location": None if late_location is None else path_argument("late_location", late_location),
                "time_format": time_format,
                "time_zone": time_zone,
                "tombstones": tombstones,
                "flush": flush,
                "flush_rows": each,
                "flush_windows": flush_windows,
                "shards": shards,
            },
        )

    def _group_argument(self, step: str, by: str | Sequence[str] | None) -> tuple[str, ...] | None:
        """Return the columns by which windows group rows; None for the update key."""
        from pyspark.sql.pandas.types import to_arrow_schema

        names = names_argument("by", by)
        if names is None:
            return None
        group = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
        if group == self.key:
            return None
        check_group_columns(f"{step}(by={{}})", group, to_arrow_schema(self.schema, timezone="UTC"))
        check_collations(self.schema, names=group)
        return group

    def _over_revised(
        self,
        options: WindowOptions,
        others: dict[str, bool],
        group: tuple[str, ...],
        shards: int,
    ) -> WindowedGroupsStream[Self]:
        """Return windows over windows that are revised."""
        given = ", ".join(name for name, given in others.items() if given)
        if given:
            raise OptionError(
                f"{given} of a window over windows that are given again",
                expected="none of these: of each inner window the newest result is kept, and a newer one replaces it",
                hint="leave them out",
            )
        return group_windows(self, group, options, shards)


def _seconds(name: str, value: str) -> float:
    return duration_argument(name, value, such_as="'10 seconds' or '0.5 ms'") / 1e6
