"""The settings of a window operator, and the reduction of its rows to entries."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ....conf.errors import MalformedRowError, OptionError, SchemaError
from ....conf.options import count_argument, text_argument
from ....conf.units import length_text
from ....core.rows.event_times import NO_TIME, check_time_zone, event_time_us
from ....core.rows.exact_integers import Int64s
from ....core.rows.key import Key
from ....core.rows.system_column import SYSTEM, TIMESTAMP, deleted_mask, system_field
from ....plan.nodes import IncompleteInput
from ...aggregates.algebra import Aggregates
from ...aggregates.functions import count, sum_
from ...aggregates.parts import Aggregate
from ...state.entries import PANE, Entries, lifted
from ..emission import Emit, ResultsFlush, emission_text, expand, written
from ..kinds import CalendarWindows, LandmarkWindows, SlideByTupleWindows, SlidingWindows
from ..panes import PaneWindows, paned
from ..sessions import Sessions, SessionWindows

Tombstones = Literal["fail", "drop"]
"""The treatment of a tombstone before a window: it ends the query, or it is dropped and counted."""

Method = Literal["wid", "paned", "adaptive", "buffering"]
"""The methods of computing windows, with the same results."""

ROWS = "__upstream_rows"
"""The number of rows, an aggregate of every plan."""

OPENS = "__upstream_opens"
"""The column and aggregate of rows that end a window, where every n-th row of a key does as it arrives."""

NUMBER = "__upstream_row"
"""The column of a row's number in the stream, for windows over the rows of the whole stream."""


@dataclasses.dataclass(frozen=True)
class WindowPlan:
    """The settings of a window operator. A checkpoint is bound to :meth:`identity`.

    `slack_us` is for the method ``buffering`` of other systems, for comparison (thesis §6.1.5). The low-watermark is
    the largest time in the shard, less this. Punctuation does not count, except for the end of an input partition.
    Results then depend on the order of arrival and on the keys in a shard, so it is not an option of a stream.
    """

    # columns by which rows have windows of their own: the update key's, unless `update_key` is set
    key: Key
    # column of the windowing attribute; None for windows over each key's rows, NUMBER over the stream's
    time: str | None
    time_format: str | None  # of the time column, if its type does not determine it
    time_zone: str
    # over microseconds, or over numbers of rows
    windows: SlidingWindows | LandmarkWindows | CalendarWindows | SlideByTupleWindows | SessionWindows
    aggregates: Mapping[str, Aggregate]  # by the names of the results
    emit: Emit
    method: Method
    lateness_us: int  # time for which a window may be corrected after it closed
    shards: int
    schema: pa.Schema  # of the rows
    slack_us: int | None = None
    tombstones: Tombstones = "fail"  # changeable, so that a query that a tombstone ended can resume
    flush: ResultsFlush = "eager"
    flush_rows: int | None = None  # slow flush: most results that leave a shard in a batch
    flush_windows: int = 1  # lazy flush: windows after which a result leaves at the latest
    update_key: Key | None = None  # of the rows, if windows are by other columns; else None

    def __post_init__(self) -> None:
        if self.method not in get_args(Method):
            raise OptionError(f"method={self.method!r}", expected="auto, " + ", ".join(get_args(Method)))
        if self.tombstones not in get_args(Tombstones):
            raise OptionError(
                f"tombstones={self.tombstones!r}",
                expected="'fail' or 'drop'",
                hint="a tombstone has a key and a time, and no values that could be taken out of an aggregate",
            )
        check_time_zone("time_zone", self.time_zone)
        text_argument("time_format", self.time_format)
        count_argument("shards", self.shards)

    @cached_property
    def algebra(self) -> Aggregates:
        """The aggregates over these rows, and besides them the number of rows, and of those that end a window."""
        marks = {OPENS: sum_(OPENS)} if self.numbers_arrivals else {}
        return Aggregates.of({**self.aggregates, ROWS: count(), **marks}, self.marked_schema)

    @property
    def marked_schema(self) -> pa.Schema:
        """The schema of rows in a shard, which marks those that end a window."""
        return self.schema.append(pa.field(OPENS, pa.int64())) if self.numbers_arrivals else self.schema

    @cached_property
    def paned(self) -> PaneWindows:
        """The units by which state is kept: panes or, for the method ``wid``, windows themselves."""
        assert not isinstance(self.windows, SessionWindows), "sessions have no panes"
        return PaneWindows(self.windows, SlidingWindows(1, 1)) if self.method == "wid" else paned(self.windows)

    @property
    def every(self) -> bool:
        """True if each window yields a result, not only the most recent one of each key."""
        return self.emit.startswith("all")

    @property
    def early(self) -> bool:
        return self.emit.endswith("early")

    @property
    def emission(self) -> str:
        """:attr:`emit` as the user writes it, such as ``emit='all'``."""
        return written(self.emit)

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.key])

    @property
    def rows_key(self) -> Key:
        """The update key of the rows, and of their group-wise punctuation."""
        return self.key if self.update_key is None else self.update_key

    @property
    def by_rows(self) -> bool:
        """True for windows over the rows of each key, as they arrive."""
        return self.time is None

    @property
    def by_number(self) -> bool:
        """True for windows over the rows of the whole stream, by the number that each got as it arrived."""
        return self.time == NUMBER

    @property
    def ends_type(self) -> pa.DataType:
        return pa.int64() if self.by_rows or self.by_number else TIMESTAMP

    @property
    def columns(self) -> list[str]:
        """The columns of rows that the windows need."""
        time = [] if self.time is None else [self.time]
        inputs = [name for name in self.algebra.inputs if name != OPENS]
        return list(dict.fromkeys([*self.key, *self.rows_key, *time, *inputs, SYSTEM]))

    @property
    def numbers_arrivals(self) -> bool:
        """True if every n-th row of a key, in the order of arrival, ends a window."""
        return isinstance(self.windows, SlideByTupleWindows) and self.rows_apart > 1 and self.windows.order == "arrival"

    @property
    def takes_rows(self) -> bool:
        """True if rows must arrive as they are; else they arrive as partial aggregates, if they are not late."""
        return self.by_rows or self.keeps_rows or self.numbers_arrivals

    @property
    def rows_apart(self) -> int:
        """The rows of a key between two windows by time; 1 if windows do not slide by several rows."""
        return self.windows.every if isinstance(self.windows, SlideByTupleWindows) else 1

    @property
    def keeps_rows(self) -> bool:
        """True if rows are kept as they are, of some keys at least; then they must arrive as they are."""
        return self.method in ("adaptive", "buffering")

    @property
    def stored_columns(self) -> list[str]:
        """The columns that are kept of a row, if rows are kept."""
        return list(dict.fromkeys([*self.key, *self.algebra.inputs]))

    def identity(self) -> dict[str, str]:
        """Return the settings to which a checkpoint is bound, as text."""
        return {
            "key": ", ".join(self.key),
            "time": self._time_text,
            "window": str(self.windows),
            "emit": emission_text(self.emit),
            "method": self.method,
            "allowed lateness": length_text(self.lateness_us) if self.lateness_us else "",
            "shards": str(self.shards),
            **({} if self.slack_us is None else {"slack": length_text(self.slack_us)}),
            **({"flush": self.flush} if self.flush == "slow" else {}),  # Spark numbers the sources of ticks
        }

    @property
    def _time_text(self) -> str:
        if self.time is None:
            return "rows"
        if self.by_number:
            return "rows of the stream"
        return f"{self.time} ({self.time_format or 'as typed'}, {self.time_zone})"

    def changeable(self) -> dict[str, str]:
        """Return the other settings, as text, which may change from run to run."""
        tombstones = {} if self.tombstones == "fail" else {"tombstones": self.tombstones}
        flush = {} if self.flush_rows is None else {"results a batch": str(self.flush_rows * self.shards)}
        if self.flush == "lazy":
            flush = {"flush": f"lazy, at most {self.flush_windows} windows later"}
        return {"aggregates": self.aggregates_text, **tombstones, **flush}

    @cached_property
    def aggregates_text(self) -> str:
        return ", ".join(f"{name}={aggregate.text}" for name, aggregate in self.aggregates.items())

    @cached_property
    def state_columns(self) -> dict[str, str]:
        return {field.name: str(field.type) for field in self.algebra.state_schema}

    def times(self, rows: pa.Table) -> Int64s:
        """Return the windowing attribute of rows: microseconds, or row numbers; refuse rows without a readable time."""
        assert self.time is not None
        if self.by_number:
            return rows.column(self.time).to_numpy()
        times = event_time_us(rows.column(self.time), self.time_format, self.time_zone)
        missing = int(np.count_nonzero(times == NO_TIME))
        if missing:
            raise MalformedRowError(
                f"{missing} of {len(times)} rows have no time in {self.time!r} that can be read, so they are in no "
                "window",
                expected="a time in each row",
                hint="take such rows out before the window, and count them",
            )
        return times

    def checked(self, rows: pa.Table) -> tuple[pa.Table, int]:
        """Drop tombstones and count them, or refuse them, by the plan. Refuse rows that represent several updates."""
        covered = system_field(rows, "covered")
        if len(covered) and int(pc.max(covered).as_py() or 1) > 1:
            raise SchemaError(
                "a row before the window represents several updates, of which the others were coalesced",
                expected="every row: a window over the newest ones only would count too few",
                hint="put the window before the queue, and read the source without coalescing",
            )
        mask = deleted_mask(rows)
        gone = int(pc.sum(mask).as_py() or 0)
        if gone == 0:
            return rows, 0
        if self.tombstones == "fail":
            raise SchemaError(
                f"{gone} rows before the window are tombstones",
                expected="values: a key that is gone has none to aggregate",
                hint='give window(…, tombstones="drop") and start the query again: it continues, leaves them out and '
                "counts them",
            )
        return rows.filter(pc.invert(mask)), gone

    def entries(self, rows: pa.Table, times: Int64s) -> tuple[Entries | Sessions, int]:
        """Reduce rows to entries, or to parts of sessions; return these, and how many rows are in no window."""
        if isinstance(self.windows, SessionWindows):
            return Sessions.lifted(self.algebra, rows, self.key, times, self.windows.gap)[0], 0
        rows, places, outside = self.placed(rows, times)
        return lifted(self.algebra, rows, self.key, places), outside

    def placed(self, rows: pa.Table, times: Int64s) -> tuple[pa.Table, Int64s, int]:
        """Return rows with their panes (or windows, a row for each), and how many rows are in no window."""
        first, last = self.windows.wids(times)
        outside = int(np.count_nonzero(last < first))
        if self.method == "wid":
            row, wid = expand(first, last)
            return rows.take(pa.array(row)), wid, outside
        if outside:
            inside = last >= first
            rows, times = rows.filter(pa.array(inside)), times[inside]
        return rows, self.paned.pane_of(times), outside

    def lifted(self, table: pa.Table) -> Entries:
        """Return rows that were kept, with :data:`PANE`, as entries."""
        return lifted(self.algebra, table, self.key, table.column(PANE).to_numpy())

    def rows_of(self, state: pa.Table) -> int:
        return int(np.sum(self.algebra.lower(state).column(ROWS).to_numpy())) if state.num_rows else 0


def left_out_by_windows(plan: WindowPlan) -> IncompleteInput | None:
    """Return why another window cannot count these windows' results, or None if it can."""
    if plan.early:
        return IncompleteInput(
            f"{plan.emission} gives a window several times, and another window would count each of them",
            'give this window and the one before it emit="all": a revised window then replaces the one before; or '
            "leave early out",
        )
    if not plan.every:
        passes = {
            "lazy": "gives only the latest of a key's windows that close in one batch",
            "eager": "passes over the windows that start while a key is committed to another one",
        }
        return IncompleteInput(
            f"{plan.emission} {passes[plan.emit]}, so another window's results would depend on the batches",
            'give the window before emit="all", which emits every window once',
        )
    if plan.lateness_us:
        return IncompleteInput(
            "a window with an allowed lateness re-emits a result that is corrected, and another window would count "
            "both",
            'give this window emit="all": a corrected window then replaces the one before; or leave lateness out',
        )
    return None


def revises(plan: WindowPlan) -> bool:
    """Return whether all windows by time emit results, and some of them emit revised ones."""
    by_time = not plan.by_rows and not plan.by_number and not isinstance(plan.windows, SessionWindows)
    return plan.every and by_time and (plan.early or plan.lateness_us > 0)
