"""Windows of each key, as a plan has them: on the stream's time, on its rows, and sessions."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import pyarrow as pa

from ..conf.errors import OptionError
from ..conf.options import count_argument, duration_argument, names_argument, text_argument
from ..core.rows.event_times import check_time_type, check_time_zone
from ..core.rows.key import Key
from ..core.rows.text import check_collations
from ..plan.nodes import IncompleteInput, Node, NumberRows, Window, check_complete
from ..plan.properties import check_key_columns, check_promised, identity_of
from .aggregates.algebra import Aggregates
from .aggregates.parts import Aggregate
from .group_by import OpenGroupWindows, group_windows
from .runtime.ticks import flush_rows_each
from .step_arguments import check_group_columns, check_result_names, late_argument
from .windows.emission import Output, emit_for
from .windows.panes import check_size, paned
from .windows.parse import RowOrder, RowsOf, windows_asked
from .windows.sessions import SessionWindows
from .windows.shards.plan import (
    NUMBER,
    ResultsFlush,
    Tombstones,
    WindowPlan,
    check_method,
    check_tombstones,
    left_out_by_windows,
    revises,
)

if TYPE_CHECKING:
    import datetime as dt


WindowMethod = Literal["auto", "wid", "paned", "adaptive", "buffering"]


@dataclasses.dataclass(frozen=True)
class KeyWindows:
    """Windows of a plan's rows, whose aggregates are to come."""

    before: Node
    plan: WindowPlan  # without aggregates
    late_location: str | None
    automatic: bool = False  # whether the aggregates determine the method

    def aggregated(self, aggregates: Mapping[str, Aggregate]) -> Window:
        """Return the plan of the windows' results."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from .windows.shards.adaptive_keys import with_automatic_method
        from .windows.shards.results import RESULT_COLUMNS, result_schema
        from .windows.shards.row_numbers import NumberingPlan

        key = self.plan.key
        check_result_names(aggregates, key, RESULT_COLUMNS, "key")
        plan = dataclasses.replace(self.plan, aggregates=aggregates)
        if plan.time not in (None, NUMBER):
            kind = plan.schema.field(plan.time).type
            check_time_type(plan.time, kind, plan.time_format, "time_format")
        _check_aggregated(plan, self.late_location)
        if self.automatic:
            plan = with_automatic_method(plan)
        before = self.before
        if plan.by_number:
            numbered = pa.schema([plan.schema.field(name).with_nullable(True) for name in plan.columns])
            plan = dataclasses.replace(plan, schema=numbered)
            before = NumberRows(
                before.key, None, from_arrow_schema(numbered), None, False, None,
                inputs=(before,), specification=NumberingPlan(numbered),
            )  # fmt: skip
        return Window(
            Key(key), "window_time", from_arrow_schema(result_schema(plan)), left_out_by_windows(plan), False,
            plan.shards, inputs=(before,), specification=plan, revises=revises(plan),
            late_location=self.late_location, paced=plan.flush_rows is not None,
            promises=not (plan.by_rows or plan.by_number),
        )  # fmt: skip


def open_windows(
    before: Node,
    duration: str,
    slide: str | None,
    *,
    of: RowsOf,
    order: RowOrder | None,
    by: str | Sequence[str] | None,
    output: Output,
    early: bool,
    method: WindowMethod,
    allowed_lateness: str,
    late_location: str | os.PathLike[str] | None,
    origin: str | dt.datetime | dt.date | None,
    zone: str | None,
    time_format: str | None,
    time_zone: str,
    tombstones: Tombstones,
    flush: ResultsFlush,
    flush_rows: int | None,
    flush_windows: int,
    shards: int,
) -> KeyWindows | OpenGroupWindows:
    """Return windows on a plan's time or its rows; windows of groups over windows that are given again."""
    check_key_columns(before, "window")
    group = _group_argument("window", before, by)
    emit = emit_for(output, early=early)
    check_method(method)
    check_tombstones(tombstones)
    revised = identity_of(before) if isinstance(before.left_out, IncompleteInput) and output == "all" else None
    if revised is not None and set(revised) > set(before.key):
        others = {
            f"of={of!r}": of != "key", f"order={order!r}": order is not None, "method": method != "auto",
            "tombstones": tombstones != "fail", "flush": flush != "eager",
        }  # fmt: skip
        given = ", ".join(name for name, given in others.items() if given)
        if given:
            raise OptionError(
                f"{given} of a window over windows that are given again",
                expected="none of these: of each inner window the newest result is kept, and a newer one replaces it",
                hint="leave them out",
            )
        return group_windows(
            before, group or before.key, duration, slide, early=early, newest="window", event_time=None,
            allowed_lateness=allowed_lateness, late_location=late_location, origin=origin, zone=zone,
            time_format=time_format, time_zone=time_zone, shards=shards,
        )  # fmt: skip
    check_complete(before.left_out)
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
        _check_time(before, "windows by time")
    of_stream = of == "stream"
    plan = WindowPlan(
        key=group or before.key,
        update_key=None if group is None else before.key,
        time=NUMBER if of_stream else None if by_rows else before.time,
        time_format=time_format,
        time_zone=time_zone,
        windows=windows,
        aggregates={},
        emit=emit,
        method="paned" if method == "auto" else method,
        lateness_us=duration_argument("allowed_lateness", allowed_lateness),
        shards=shards,
        schema=before.arrow.append(pa.field(NUMBER, pa.int64())) if of_stream else before.arrow,
        tombstones=tombstones,
        flush=flush,
        flush_rows=each,
        flush_windows=flush_windows,
    )
    return KeyWindows(before, plan, late_argument(late_location), method == "auto")


def open_sessions(
    before: Node,
    gap: str,
    *,
    by: str | Sequence[str] | None,
    output: Literal["latest", "all"],
    early: bool,
    allowed_lateness: str,
    late_location: str | os.PathLike[str] | None,
    time_format: str | None,
    time_zone: str,
    tombstones: Tombstones,
    shards: int,
) -> KeyWindows:
    """Return the sessions of a plan's rows."""
    check_key_columns(before, "session_window")
    group = _group_argument("session_window", before, by)
    if output not in ("latest", "all"):
        raise OptionError(
            f"output={output!r} with session windows",
            expected="'latest' or 'all': which session starts last is known only when it has closed",
        )
    check_tombstones(tombstones)
    check_complete(before.left_out)
    check_time_zone("time_zone", time_zone)
    count_argument("shards", shards)
    text_argument("time_format", time_format)
    gap_us = duration_argument("gap", gap)
    if gap_us <= 0:
        raise OptionError(f"gap={gap!r}", expected="at least 1 microsecond, such as '5 minutes'")
    _check_time(before, "session windows")
    plan = WindowPlan(
        key=group or before.key,
        update_key=None if group is None else before.key,
        time=before.time,
        time_format=time_format,
        time_zone=time_zone,
        windows=SessionWindows(gap_us),
        aggregates={},
        emit=emit_for(output, early=early),
        method="paned",
        lateness_us=duration_argument("allowed_lateness", allowed_lateness),
        shards=shards,
        schema=before.arrow,
        tombstones=tombstones,
    )
    return KeyWindows(before, plan, late_argument(late_location))


def _check_time(plan: Node, what: str) -> None:
    """Refuse windows over rows without an event time, or without a low-watermark."""
    if plan.time is None:
        raise OptionError(
            f"{what} on a stream without a time",
            expected="UpdateStream(df, key=…, event_time=…)",
            hint="name the time column",
        )
    check_promised(plan, what, "; windows of rows (window('100 rows')) need none")


def _group_argument(step: str, plan: Node, by: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns by which windows group rows; None for the update key."""
    names = names_argument("by", by)
    if names is None:
        return None
    group = (names,) if isinstance(names, str) else tuple(dict.fromkeys(names))
    if group == plan.key:
        return None
    check_group_columns(f"{step}(by={{}})", group, plan.arrow)
    check_collations(plan.schema, names=group)
    return group


def _check_aggregated(plan: WindowPlan, late_location: str | None) -> None:
    Aggregates.of(plan.aggregates, plan.schema)  # refuses unsuitable columns, and no aggregates
    if isinstance(plan.windows, SessionWindows):
        return
    entry = plan.algebra.empty(1)
    check_size(paned(plan.windows), plan.method, plan.every, entry.nbytes)
    over_rows = plan.by_rows or plan.by_number
    if over_rows and (plan.emit == "eager" or plan.lateness_us or (plan.by_rows and plan.method != "paned")):
        raise OptionError(
            "windows over rows with a method, output='eager' or an allowed lateness",
            expected="output='latest' or 'all', early or not: rows are counted as they arrive, so none is late",
        )
    if plan.by_number and late_location is not None:
        raise OptionError(
            f"late_location={late_location!r} with windows over the rows of the whole stream",
            expected="no late_location: rows are counted as they arrive, so none is late",
            hint="leave it out",
        )
    if plan.by_number and plan.flush == "lazy":
        raise OptionError(
            "flush='lazy' with windows over the rows of the whole stream",
            expected="flush='eager' or 'slow': after the last row no window closes, and a result would wait for ever",
        )
    if plan.flush != "eager" and plan.by_rows:
        raise OptionError(
            f"flush={plan.flush!r} with windows over rows",
            expected="windows by time: a window over rows closes with its key's last row, so there is no burst",
        )
    if plan.rows_apart > 1 and plan.early:
        raise OptionError(
            f"early=True with windows that slide by {plan.rows_apart} rows",
            expected="early=False: which row is the n-th is known only when the low-watermark has passed it"
            if not plan.numbers_arrivals
            else "early=False: such a window gives its result once, when the low-watermark has passed its row",
        )
    if plan.flush == "lazy" and plan.paned.by_row:
        raise OptionError(
            "flush='lazy' with windows that slide by row",
            expected="sliding, tumbling, calendar or landmark windows, so that it is known how many windows later a "
            "result has to leave",
            hint="flush='slow' takes them all",
        )
    if plan.lateness_us and (plan.paned.endless or plan.paned.by_row):
        raise OptionError(
            "allowed_lateness on landmark windows, or on windows that slide by row",
            expected="sliding or tumbling windows by time: here a late row would change windows without number",
            hint="leave it out; late rows still count in the windows that are open",
        )
    panes = paned(plan.windows)
    if plan.method == "wid" and (panes.endless or panes.by_row):
        raise OptionError(
            "method='wid' on landmark windows, or on windows that slide by row",
            expected="'paned', 'adaptive' or 'buffering': how many of them a row is in is not known when it comes",
        )
    if plan.emit == "eager" and (panes.endless or panes.by_row or plan.keeps_rows or plan.lateness_us):
        raise OptionError(
            "output='eager' on landmark windows, on windows that slide by row, with a method that keeps rows, or with "
            "an allowed lateness",
            expected="sliding or tumbling windows, the method paned or wid, and no lateness: rows that no committed "
            "window needs are not kept",
            hint="output='latest' takes them all",
        )
