"""Groups of the newest row of each key, and windows over them, as a plan has them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import get_args

from ..conf.errors import OptionError, SchemaError
from ..conf.options import count_argument, text_argument
from ..core.rows.event_times import check_time_type
from ..core.rows.key import Key
from ..core.rows.system_column import SYSTEM
from ..plan.newest_nodes import GroupBy, WindowedGroups, WindowVersions
from ..plan.nodes import IncompleteInput, Node, check_complete
from ..plan.properties import check_key_columns, check_promised, identity_of
from .aggregates.algebra import Aggregates
from .aggregates.parts import Aggregate, check_named
from .grouped.plan import GroupPlan, GroupWindowPlan, Newest
from .join_steps import versions
from .joins.latest_plan import LatestSide, VersionPlan
from .step_arguments import check_group_columns, check_result_names, time_span
from .windows.panes import check_size, paned
from .windows.shards.plan import WindowPlan


@dataclasses.dataclass(frozen=True)
class NewestGroups:
    """Groups of the newest rows of a plan, without aggregates or windows yet."""

    before: Node
    columns: Key  # of the group
    shards: int
    retention: int | None  # how far the watermark passes a deletion before it is forgotten, in units of the time
    ttl: int | None  # how far the watermark passes a row before it expires, in the same units

    def aggregated(self, aggregates: Mapping[str, Aggregate]) -> GroupBy:
        """Return the plan of the groups' results."""
        check_named(aggregates, {*self.columns, SYSTEM})
        Aggregates.of(aggregates, self.before.arrow)  # refuses unsuitable columns, and no aggregates
        return self._grouped(
            aggregates,
            "group_by(…) gives the newest value of each group, in place of the one before",
            "group_by(…).window(…) opens windows over the newest rows of each group",
        )

    def distinct(self) -> GroupBy:
        """Return the plan of the groups themselves: one row for each, as long as a key's newest row is in it."""
        return self._grouped({}, "distinct(…) retracts values that no newest row has", "put the window before it")

    def _grouped(self, aggregates: Mapping[str, Aggregate], problem: str, hint: str) -> GroupBy:
        from pyspark.sql.pandas.types import from_arrow_schema

        before = self.before
        side = LatestSide(self.columns, "", before.arrow, before.key, before.time)
        plain = GroupPlan(side, aggregates, self.shards)
        side = dataclasses.replace(side, values=plain.algebra.inputs, retention=self.retention, ttl=self.ttl)
        plan = dataclasses.replace(plain, side=side)
        if not side.stays:
            before = versions(before, VersionPlan(side, self.shards))
        return GroupBy(
            self.columns, None, from_arrow_schema(plan.schema), IncompleteInput(problem, hint), False, self.shards,
            inputs=(before,), specification=plan,
        )  # fmt: skip

    def check_windows(self) -> None:
        """Refuse windows of groups whose rows expire."""
        for name, given in (("ttl", self.ttl), ("tombstone_retention", self.retention)):
            if given is not None:
                raise OptionError(
                    f"group_by(…, {name}=…).window(…)",
                    expected="one of them: a window counts the rows that there were, and drops them when it is final",
                    hint=f"leave {name} out",
                )


def open_groups(
    before: Node,
    columns: Sequence[str],
    *,
    ttl: str | int | None,
    tombstone_retention: str | int | None,
    shards: int,
) -> NewestGroups:
    """Return groups of the newest rows of a plan."""
    check_key_columns(before, "group_by")
    names = Key(dict.fromkeys(str(text_argument("group_by", each)) for each in columns))
    if not names:
        raise OptionError("group_by()", expected="at least one column", hint="name the columns of the group")
    check_group_columns("group_by({})", names, before.arrow)
    return NewestGroups(
        before,
        names,
        count_argument("shards", shards),
        time_span("group_by", "tombstone_retention", before, tombstone_retention),
        time_span("group_by", "ttl", before, ttl),
    )


@dataclasses.dataclass(frozen=True)
class GroupWindows:
    """Windows over the newest rows of groups, without aggregates yet."""

    before: Node
    plan: GroupWindowPlan  # without aggregates
    late_aside: bool

    def aggregated(self, aggregates: Mapping[str, Aggregate]) -> WindowedGroups:
        """Return the plan of the windows' results."""
        from pyspark.sql.pandas.types import from_arrow_schema

        from .windows.shards.results import RESULT_COLUMNS, result_schema

        before, late_aside = self.before, self.late_aside
        window = dataclasses.replace(self.plan.window, aggregates=aggregates)
        plan = dataclasses.replace(self.plan, window=window)
        check_result_names(aggregates, plan.group, RESULT_COLUMNS, "group")
        assert window.time is not None
        check_time_type(window.time, window.schema.field(window.time).type, window.time_format, "time_format")
        Aggregates.of(aggregates, window.schema)  # refuses unsuitable columns, and no aggregates
        check_size(paned(window.windows), "wid", True, window.algebra.empty(1).nbytes)
        if not plan.stays and plan.ends:
            before = WindowVersions(
                plan.key, window.time, from_arrow_schema(plan.side.versioned), None, False, plan.shards,
                inputs=(before,), specification=plan, late_aside=late_aside,
            )  # fmt: skip
            late_aside = False
        elif not plan.stays:
            before = versions(before, VersionPlan(plan.side, plan.shards))
        left_out = IncompleteInput(
            "group_by(…).window(…) re-emits a window when it changes",
            "leave early out"
            if plan.ends
            else "aggregate windows of windows by group_by(…).window(…) without newest='table'",
        )
        return WindowedGroups(
            Key((*plan.group, "window_id")), "window_time", from_arrow_schema(result_schema(window)),
            left_out if plan.early else None, False, None, inputs=(before,), specification=plan,
            late_aside=late_aside, ends=plan.ends, early=plan.early,
        )  # fmt: skip


def group_windows(
    before: Node,
    window: WindowPlan,
    late_aside: bool,
    newest: Newest = "window",
    event_time: str | None = None,
) -> GroupWindows:
    """Return windows over the newest rows of groups; `window` has the event time of the rows."""
    if newest not in get_args(Newest):
        raise OptionError(
            f"newest={newest!r}",
            expected="'window' or 'table'",
            hint="'window' counts each key in each window, 'table' only in the windows of its newest row",
        )
    time, key = text_argument("event_time", event_time), before.key
    if newest == "table":
        if window.lateness_us or late_aside:
            raise OptionError(
                "a lateness with newest='table'",
                expected="none: a window of a table never becomes final, so no row is late for it",
                hint="leave it out",
            )
        time = time or before.time
        if time is not None and (time not in before.schema.names or time == SYSTEM):
            raise SchemaError(
                f"event_time={time!r} is not a column of the stream",
                expected="a column among " + ", ".join(name for name in before.schema.names if name != SYSTEM),
                hint="correct the name",
            )
    else:
        if time is not None:
            raise OptionError(
                f"event_time={time!r} with newest='window'",
                expected="the stream's event time: it decides which row of a window is newest",
                hint="leave it out, or give newest='table'",
            )
        identity = identity_of(before)
        if identity is None:
            check_complete(before.left_out)
            raise SchemaError(
                "windows over retracted results, whose time may change",
                expected="every row, once, or re-emitted windows",
                hint="group_by(…).window(…, newest='table') counts only the newest row of each key",
            )
        time, key = before.time, identity
        if time is not None:
            check_promised(before, "windows by time", "; window(…, newest='table') needs none")
    if time is None:
        raise OptionError(
            "windows by time on a stream without an event time",
            expected="an event time: UpdateStream(df, key=…, event_time=…)",
            hint="name the column that assigns rows to windows: group_by(…).window(…, newest='table', "
            "event_time='join_time') after join_latest",
        )
    plan = GroupWindowPlan(
        dataclasses.replace(window, time=time), key, before.time, newest, window.early or newest == "table"
    )
    return GroupWindows(before, plan, late_aside)
