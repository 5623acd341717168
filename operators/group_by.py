"""Aggregates over the newest row of each key: ``stream.group_by("route_id").agg(vehicles=count())``."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Generic, TypeVar

from ..conf.errors import OptionError
from ..conf.options import count_argument, text_argument
from ..core.rows.system_column import SYSTEM
from ..plan.newest_nodes import GroupBy, Versions
from ..plan.nodes import IncompleteInput
from .aggregates.parts import Aggregate, check_named
from .grouped.plan import GroupPlan, Newest
from .grouped_windows import WindowedGroupsStream, WindowOptions, group_windows
from .joins.latest_plan import LatestSide, VersionPlan
from .keyed_stream import KeyedRows
from .step_arguments import check_group_columns, time_span

if TYPE_CHECKING:
    import datetime as dt

    from typing_extensions import Self


StreamT = TypeVar("StreamT", bound=KeyedRows)


@dataclasses.dataclass(frozen=True)
class GroupedStream(Generic[StreamT]):
    """The newest row of each key, by group; made by :meth:`UpdateStream.group_by`.

    Attributes
    ----------
    stream
    columns : tuple of str
        Of the group.
    shards : int
    retention : int or None
        How far the watermark has to pass a deletion before its time is forgotten, in units of the time column.
    ttl : int or None
        How far the watermark has to pass a row before it expires, in the same units.
    """

    stream: StreamT
    columns: tuple[str, ...]
    shards: int
    retention: int | None = None
    ttl: int | None = None

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
        from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

        stream = self.stream
        check_named(aggregates, {*self.columns, SYSTEM})
        schema = to_arrow_schema(stream.schema, timezone="UTC")
        plain = GroupPlan(LatestSide(self.columns, "", schema, stream.key, stream.event_time), aggregates, self.shards)
        side = dataclasses.replace(plain.side, values=plain.algebra.inputs, retention=self.retention, ttl=self.ttl)
        plan = dataclasses.replace(plain, side=side)
        before = stream.plan
        if not side.stays:
            before = Versions(
                side.key, None, from_arrow_schema(side.versioned), None, False, self.shards,
                inputs=(before,), specification=VersionPlan(side, self.shards),
            )  # fmt: skip
        left_out = IncompleteInput(
            "group_by(…) gives the newest value of each group, in place of the one before",
            "group_by(…).window(…) opens windows over the newest rows of each group",
        )
        return stream.__class__._of(
            GroupBy(
                self.columns, None, from_arrow_schema(plan.schema), left_out, False, self.shards,
                inputs=(before,), specification=plan,
            )
        )  # fmt: skip

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
    ) -> WindowedGroupsStream[StreamT]:
        """Open windows of each group, in which each key counts once, with its newest row.

        Parameters
        ----------
        duration, slide, origin, zone, time_format, time_zone
            As for :meth:`~upstream.operators.stateful.Stateful.window`: sliding or tumbling windows by time.
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
        WindowedGroupsStream
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
        for name, given in (("ttl", self.ttl), ("tombstone_retention", self.retention)):
            if given is not None:
                raise OptionError(
                    f"group_by(…, {name}=…).window(…)",
                    expected="one of them: a window counts the rows that there were, and drops them when it is final",
                    hint=f"leave {name} out",
                )
        options = WindowOptions(
            duration=duration,
            slide=slide,
            early=early,
            newest=newest,
            event_time=event_time,
            allowed_lateness=allowed_lateness,
            late_location=late_location,
            origin=origin,
            zone=zone,
            time_format=time_format,
            time_zone=time_zone,
        )
        return group_windows(self.stream, self.columns, options, self.shards)


class GroupSteps(KeyedRows):
    """Groups of newest rows: part of :class:`~upstream.operators.stream.UpdateStream`."""

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
        from pyspark.sql.pandas.types import to_arrow_schema

        self._check_key_columns("group_by")
        names = tuple(dict.fromkeys(str(text_argument("group_by", each)) for each in columns))
        if not names:
            raise OptionError("group_by()", expected="at least one column", hint="name the columns of the group")
        schema = to_arrow_schema(self.schema, timezone="UTC")
        check_group_columns("group_by({})", names, schema)
        return GroupedStream(
            self,
            names,
            count_argument("shards", shards),
            time_span("group_by", "tombstone_retention", self, tombstone_retention),
            time_span("group_by", "ttl", self, ttl),
        )
