"""A stream with windows or groups, until their aggregates are given."""

from __future__ import annotations

import dataclasses
from typing import Generic, Literal, TypeVar

from ..operators.aggregates.parts import Aggregate
from ..operators.group_by import GroupWindows, NewestGroups, group_windows
from ..operators.grouped.plan import Newest
from ..operators.window_steps import KeyWindows
from ..operators.windows.emission import Emission, emission_for, emit_for
from ..operators.windows.parse import Lateness, Windower, lateness_for, windower_for, windows_of_groups
from ..operators.windows.shards.plan import WindowPlan
from .steps import StreamSteps

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
        duration: str | Windower,
        slide: str | None = None,
        *,
        zone: str | None = None,
        newest: Newest = "window",
        event_time: str | None = None,
        emit: Literal["all"] | Emission = "all",
        lateness: str | Lateness = "0 seconds",
    ) -> WindowedStream[StreamT]:
        """Open windows of each group, in which each key counts once, with its newest row.

        Parameters
        ----------
        duration, slide, zone
            As for :meth:`~upstream.UpdateStream.window`: sliding or tumbling windows by time.
        newest
            ``window``: a key counts in each window with its newest row in that window. ``table``: a key counts with
            its newest row of all, and only in the windows of that row. A newer row may take it out of any window, so
            no window is final, and all results are early.
        event_time
            The column that places rows in windows, with ``newest="table"`` [default: the stream's event time]. After
            `join_latest`, give ``join_time`` or a column of the left or right.
        emit
            ``us.Emission(early=True)`` also emits interim results, with ``final = false``, whenever a window changes.
        lateness
            How long after the watermark has passed its end a window still changes. It is final after that.
            ``us.Lateness("5 minutes", dead_letters=True)`` writes later rows to the dead-letter table.

        Returns
        -------
        WindowedStream
            To be aggregated by its method `agg`.

        Raises
        ------
        OptionError
            An option makes no sense, or the stream has no event time or no watermark.
        SchemaError
            Rows are missing that would count: the stream coalesces, comes from a queue, or retracts results.

        Notes
        -----
        The stream may have re-emitted windows: by early results, or within an allowed lateness. Then a revised window
        replaces the one before it. A tombstone, such as those of ``where(…, on_leave="delete")``, takes its key out of
        the windows in which it is the newest row.

        Examples
        --------
        >>> now = us.Emission(early=True)
        >>> slow = stream.group_by("vehicle_id").window("15 minutes", emit=now).agg(slowest=us.min("speed"))
        """
        groups = self.groups
        groups.check_windows()
        late, form = lateness_for(lateness), groups.before.time_format
        window = WindowPlan(
            key=groups.columns, time=groups.before.time, time_format=form.format, time_zone=form.zone,
            windows=windows_of_groups(windower_for(duration, slide, zone)), aggregates={},
            emit=emit_for(emission_for("group_by(…).window", emit, ("all",))), method="paned",
            lateness_us=late.allowed_us, shards=groups.shards, schema=groups.before.arrow,
        )  # fmt: skip
        return WindowedStream(self.stream, group_windows(groups.before, window, late.dead_letters, newest, event_time))
