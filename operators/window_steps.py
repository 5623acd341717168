"""Windows of each key, as a plan has them: on the stream's time, on its rows, and sessions."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import pyarrow as pa

from ..conf.errors import OptionError
from ..core.rows.event_times import check_time_type
from ..core.rows.key import Key
from ..core.rows.text import check_collations
from ..plan.nodes import IncompleteInput, Node, NumberRows, Window, check_complete
from ..plan.properties import check_key_columns, check_promised, identity_of
from .aggregates.algebra import Aggregates
from .aggregates.parts import Aggregate
from .step_arguments import check_group_columns, check_result_names
from .windows.panes import check_size, paned
from .windows.sessions import SessionWindows
from .windows.shards.plan import NUMBER, WindowPlan, left_out_by_windows, revises


@dataclasses.dataclass(frozen=True)
class KeyWindows:
    """Windows of a plan's rows, without aggregates yet."""

    before: Node
    plan: WindowPlan  # without aggregates
    late_aside: bool
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
        _check_aggregated(plan, late_aside=self.late_aside)
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
            key, "window_time", from_arrow_schema(result_schema(plan)), left_out_by_windows(plan), False,
            plan.shards, inputs=(before,), specification=plan, revises=revises(plan),
            late_aside=self.late_aside, paced=plan.flush_rows is not None,
            promises=not (plan.by_rows or plan.by_number),
        )  # fmt: skip


def over_revisions(before: Node, results: str | None, others: Mapping[str, bool]) -> bool:
    """Return whether windows are over re-emitted ones; refuse other streams with rows left out, and `others` given."""
    revised = identity_of(before) if isinstance(before.left_out, IncompleteInput) and results == "all" else None
    if revised is None or not set(revised) > set(before.key):
        check_complete(before.left_out)
        return False
    given = ", ".join(name for name, there in others.items() if there)
    if given:
        raise OptionError(
            f"{given} of a window over re-emitted windows",
            expected="none of these: the newest result of each inner window replaces the earlier one",
            hint="leave them out",
        )
    return True


def time_of(before: Node, what: str) -> str:
    """Return the event time for windows; refuse rows without one, or without a low-watermark."""
    if before.time is None:
        raise OptionError(
            f"{what} on a stream without a time",
            expected="UpdateStream(df, key=…, event_time=…)",
            hint="name the time column",
        )
    check_promised(before, what, "; windows of rows (window('100 rows')) need none")
    return before.time


def group_argument(step: str, before: Node, by: str | Sequence[str] | None) -> Key | None:
    """Return the columns by which windows group rows; None for the update key."""
    check_key_columns(before, step)
    group = None if by is None else Key(dict.fromkeys(Key.given(by, "by")))
    if group is None or group == before.key:
        return None
    check_group_columns(f"{step}(by={{}})", group, before.arrow)
    check_collations(before.schema, names=group)
    return group


def _check_aggregated(plan: WindowPlan, *, late_aside: bool) -> None:
    Aggregates.of(plan.aggregates, plan.schema)  # refuses unsuitable columns, and no aggregates
    if isinstance(plan.windows, SessionWindows):
        return
    entry = plan.algebra.empty(1)
    check_size(paned(plan.windows), plan.method, plan.every, entry.nbytes)
    over_rows = plan.by_rows or plan.by_number
    if over_rows and (plan.emit == "eager" or plan.lateness_us or (plan.by_rows and plan.method != "paned")):
        raise OptionError(
            "windows over rows with a method, emit='eager' or an allowed lateness",
            expected="emit='latest' or 'all', early or not: rows are counted as they arrive, so none is late",
        )
    if plan.by_number and late_aside:
        raise OptionError(
            "lateness=us.Lateness(dead_letters=True) with windows over the rows of the whole stream",
            expected="no lateness: rows are counted as they arrive, so none is late",
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
            "a lateness on landmark windows, or on windows that slide by row",
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
            "emit='eager' on landmark windows, on windows that slide by row, with a method that keeps rows, or with "
            "an allowed lateness",
            expected="sliding or tumbling windows, the method paned or wid, and no lateness: rows that no committed "
            "window needs are not kept",
            hint="emit='latest' takes them all",
        )
