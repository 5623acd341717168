"""Session windows on a fluent stream: ``stream.session_window("5 minutes").agg(n=count())``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError
from ..conf.options import count_argument, duration_argument, path_argument, text_argument
from ..core.rows.event_times import check_time_zone
from ..plan.nodes import check_complete
from ..plan.properties import check_promised
from .stateful import Stateful
from .window_stream import WindowedStream
from .windows.emission import emit_for
from .windows.sessions import SessionWindows
from .windows.shards.plan import Tombstones, check_tombstones

if TYPE_CHECKING:
    from typing_extensions import Self


class InSessions(Stateful):
    """Session windows: part of :class:`~upstream.operators.stream.UpdateStream`."""

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
        :meth:`~upstream.operators.window_stream.WindowedStream.agg`.

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
        >>> trips = stream.session_window("15 minutes", output="all").agg(rows=us.count(), top=us.max_("speed"))
        """
        self._check_key_columns("session_window")
        group = self._group_argument("session_window", by)
        if output not in ("latest", "all"):
            raise OptionError(
                f"output={output!r} with session windows",
                expected="'latest' or 'all': which session starts last is known only when it has closed",
            )
        check_tombstones(tombstones)
        check_complete(self.plan.left_out)
        check_time_zone("time_zone", time_zone)
        if self.event_time is None:
            raise OptionError(
                "session windows on a stream without a time",
                expected="UpdateStream(df, key=…, event_time=…)",
                hint="name the time column",
            )
        count_argument("shards", shards)
        text_argument("time_format", time_format)
        gap_us = duration_argument("gap", gap)
        if gap_us <= 0:
            raise OptionError(f"gap={gap!r}", expected="at least 1 microsecond, such as '5 minutes'")
        check_promised(self.plan, "session windows", "; windows of rows (window('100 rows')) need none")
        return WindowedStream(
            self,
            {
                "windows": SessionWindows(gap_us),
                "by": group,
                "time": True,
                "of": "key",
                "emit": emit_for(output, early=early),
                "method": "paned",
                "lateness_us": duration_argument("allowed_lateness", allowed_lateness),
                "late_location": None if late_location is None else path_argument("late_location", late_location),
                "time_format": time_format,
                "time_zone": time_zone,
                "tombstones": tombstones,
                "flush": "eager",
                "flush_rows": None,
                "flush_windows": 1,
                "shards": shards,
            },
        )
