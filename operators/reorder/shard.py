"""One shard of a union, a merge, an ordered release or a distinct: frames in, rows and one punctuation out."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa

from ...conf.errors import CheckpointError, MalformedRowError, OptionError, SchemaError
from ...conf.options import count_argument, word_argument
from ...core.feedback.reports import ReorderReport
from ...core.rows.buckets import spark_hash
from ...core.rows.columns import columns_at, covers, with_nulls
from ...core.rows.event_times import event_time_us
from ...core.rows.exact_integers import HIGHEST, LOWEST, Int64s, Mask
from ...core.rows.frames import from_frame, split_punctuation
from ...core.rows.key import Key
from ...core.rows.newest import key_codes
from ...core.rows.sort_keys import in_order, ordered
from ...core.rows.system_column import system_field, with_system_fields
from ...core.watermark.bounds import bounds_in
from ..runtime.applied_times import TimedKeys, behind, older_than
from ..runtime.feeds import ENDED, FeedBounds, KeyBounds, KeyShare, hear_all, punctuation_at
from ..runtime.pack import by_arrival
from ..runtime.shard import Shard, ShardInput
from ..state.entries import PANE
from ..state.runs import RunFiles, Runs
from ..state.store import Store

Late = Literal["pass", "refuse"]
"""The treatment of rows below the emitted low-watermark: they pass, or are written to the late table."""

Repeats = Literal["keep", "inputs", "all"]
"""The rows to drop of those that are equal in some columns and the time: none; those of other inputs than the first
row's; all but one.
"""

OperatorName = Literal["union", "merge", "ordered", "distinct"]
"""The operator, as its user calls it."""


@dataclasses.dataclass(frozen=True)
class ReorderPlan:
    """The settings of an operator that combines or orders rows.

    A checkpoint refuses another plan, except for settings that :meth:`identity` leaves out.
    """

    name: OperatorName  # its punctuation has this name
    key: Key  # the update key: punctuation with one of these columns concerns a single key
    by: Key  # with the time, these identify equal rows; they also divide rows among shards
    time: str | None  # None: rows only get new sequence numbers
    inputs: tuple[str, ...] = ()  # the feeds of each are named ``input/feed``; empty for one stream
    hold: bool = False  # rows wait for the low-watermark and leave in the order of time; otherwise they pass at once
    repeats: Repeats = "keep"
    prefer: str | None = None  # the input whose rows win over equal ones of others
    late: Late = "pass"  # for rows that pass at once: late rows are always refused if rows are held
    flush_rows: int | None = None  # the most rows that a shard releases in a batch
    shards: int = 1
    # of the time column, to report needed low-watermarks in microseconds
    time_format: str | None = None
    time_zone: str = "UTC"
    # drop rows older than one of their key that has passed, if later operators need only the newest
    newest: bool = False

    def __post_init__(self) -> None:
        count_argument("shards", self.shards)
        word_argument("late", self.late, Late)

    def identity(self) -> dict[str, str]:
        return {
            "operator": self.name,
            "key": ", ".join(self.by),
            "time": self.time or "none",
            "inputs": ", ".join(self.inputs),
            "repeats": self.repeats,
            "shards": str(self.shards),
        }

    def changeable(self) -> dict[str, str]:
        rows = {} if self.flush_rows is None else {"rows a batch": str(self.flush_rows * self.shards)}
        return {**({} if self.prefer is None else {"prefer": self.prefer}), **rows}


def check_ordered(time: str | None, kind: pa.DataType | None, operator: str) -> None:
    """Refuse to order a stream by a time that it lacks, or that has no order."""
    if time is None or kind is None:
        raise OptionError(
            f"{operator} on a stream without a time",
            expected="UpdateStream(df, key=…, event_time=…)",
            hint="name the time column",
        )
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (number or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
        raise SchemaError(
            f"{operator} by {time!r}, which is of type {kind}", expected="a timestamp, a date or a number"
        )


def check_inputs(names: Sequence[str], prefer: str | None) -> None:
    """Refuse names that do not distinguish two inputs."""
    given = cast("object", names)  # whatever it is
    texts = isinstance(given, (tuple, list)) and all(isinstance(name, str) for name in given)
    if not texts or len(names) != 2 or len(set(names)) != 2 or any(not name or "/" in name for name in names):
        raise OptionError(
            f"names={given!r}", expected="two different names without a slash: feeds are named by their input"
        )
    if prefer is not None and prefer not in names:
        raise OptionError(f"prefer={prefer!r}", expected="one of the inputs: " + ", ".join(names))


INPUT = "__upstream_input"
"""The column of the number of a row's input, among remembered rows."""


@dataclasses.dataclass(frozen=True)
class AdmissionMasks:
    """Masks of the rows that :func:`admitted` lets pass."""

    keep: Mask
    remember: Mask  # of these, the rows to remember, so that later repeats are found


def no_memory(rows: pa.Table, by: Sequence[str]) -> pa.Table:
    """Return an empty memory of these columns, with :data:`PANE` for the time, and :data:`INPUT`."""
    fields = [rows.schema.field(name) for name in by]
    return pa.schema([*fields, pa.field(PANE, pa.int64()), pa.field(INPUT, pa.int64())]).empty_table()


def admitted(
    new: pa.Table, memory: pa.Table, by: Sequence[str], repeats: Repeats, prefer: int | None
) -> AdmissionMasks:
    """Decide which rows pass, given the rows that passed before.

    Rows with equal times and equal values in `by` are repeats, of which the first to arrive passes. With repeats
    ``inputs``, later rows of the same input also pass: an input may repeat itself, and the later row counts. If an
    input is preferred, its rows pass even after equal ones of another input, and from then on only its rows do.

    `new` and `memory` have the columns `by`, :data:`PANE` and :data:`INPUT`; `new` is in the order in which rows count.
    `prefer` is the number of the preferred input.
    """
    n, known = new.num_rows, memory.num_rows
    if n == 0 or repeats == "keep":
        return AdmissionMasks(np.ones(n, dtype=np.bool_), np.zeros(n, dtype=np.bool_))
    both = pa.concat_tables([memory.select(new.column_names), new])
    codes, size = key_codes([*(both.column(name) for name in by), both.column(PANE)])
    inputs = both.column(INPUT).to_numpy()
    old, mine = codes[:known], codes[known:]
    first = np.full(size, -1)
    first[codes[::-1]] = np.arange(len(codes))[::-1]
    if repeats == "all":
        keep = first[mine] == np.arange(known, known + n)
        return AdmissionMasks(keep, keep)
    owner = np.full(size, -1)
    owner[codes] = inputs[first[codes]]
    if prefer is not None:
        owner[codes[inputs == prefer]] = prefer
    keep = inputs[known:] == owner[mine]
    # Remember one row for each owner: further ones add nothing.
    known_before = np.zeros(size, dtype=np.bool_)
    known_before[old[inputs[:known] == owner[old]]] = True
    fresh = np.flatnonzero(keep & ~known_before[mine])
    remember = np.zeros(n, dtype=np.bool_)
    remember[fresh[np.unique(mine[fresh], return_index=True)[1]]] = True
    return AdmissionMasks(keep, remember)


_LOSES = 1 << 62
"""Subtracted from the sequence number of a row that must not replace another one of its key and time."""


class ReorderShard(Shard[ReorderPlan, ReorderReport]):
    """A shard of a union, a merge, an ordered release or a distinct; `late` has the late rows that did not pass."""

    same = "inputs, columns and number of shards"
    report = ReorderReport
    counted = ("rows", "released", "held", "due", "repeats", "superseded", "late", "refused")

    def __init__(self, number: int, plan: ReorderPlan, store: Store, files: RunFiles | None = None) -> None:
        self.began = f"the state of {plan.name!r} in this checkpoint was written"
        super().__init__(number, plan, store, files)
        self._feeds = FeedBounds(self._head)
        self._shard = KeyShare(number, plan.shards, plan.by)
        saved = int(self._head.get("single", 0))
        self._keys = KeyBounds(self._store, "single", plan.key, saved, self._shard, inputs=plan.inputs)
        # A run may cover any times: rows are released in their order, and a run is removed with its last row.
        columns = self._head.get("columns")
        self._columns = None if columns is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(columns)))
        self._held = Runs(self._store, "held", self._head.get("held_runs", ()), 1, fit=self._fitted)
        self._passed = Runs(self._store, "passed", self._head.get("passed_runs", ()), 1)

    def step(self, given: ShardInput) -> tuple[pa.Table | None, dict[str, Any]]:
        """Return the rows that pass, held ones in the order of time, then the punctuation."""
        plan = self._plan
        tables = [from_frame(frame) for frame in given.left]
        schema = tables[0].schema.remove_metadata() if tables else None
        leaving: list[pa.Table] = []
        if schema is not None:
            self._fit(schema)
            rows, punctuation = split_punctuation(pa.concat_tables([table.cast(schema) for table in tables]))
            rows = by_arrival(rows)
            self._advance_clock((rows, punctuation))
            leaving.append(self._taken(rows))
            if plan.time is not None and punctuation.num_rows:
                self._hear(punctuation, plan.time)
        before = self._promised
        bound = self._low_watermark()
        raised = self._keys.raised(self._feeds.bounds, floor=LOWEST if bound is None else bound)
        if plan.hold:
            leaving += self._released(bound)
        elif bound is not None:
            self._head["promised"] = max(before, bound)
        if schema is not None:
            self._head["needs"] = self._needs(bound, schema)
        promised = self._promised
        self._passed.drop_below(promised)
        if raised is not None and raised.keys.num_rows and self._forgets_keys:
            self._forget()
        self._counts["released"] += sum(table.num_rows for table in leaving)
        if promised > before and leaving:
            leaving.append(self._punctuation(leaving[0].schema, promised, self._now_us))
        if len(self._keys) and leaving and plan.time is not None:
            leaving.append(self._of_keys(leaving[0].schema, plan.time, self._now_us))
        return (pa.concat_tables(leaving) if leaving else None), {
            "remembered": self._passed.rows,
            "bounds": dict(self._feeds.bounds),
            "promised": self._head.get("promised"),
            "needs": self._head.get("needs"),
        }

    def _taken(self, rows: pa.Table) -> pa.Table:
        """Return the arriving rows that pass at once; hold, refuse, or drop the others."""
        plan, n = self._plan, rows.num_rows
        self._counts["rows"] += n
        seq = self._sequence(n)
        if plan.time is None or n == 0:
            return with_system_fields(rows, seq=pa.array(seq))
        times = self._times(rows, plan.time)
        late = times < self._promised
        if len(self._keys) and self._forgets_keys:
            late |= times < self._keys.of(columns_at(rows, plan.key))
        inputs = self._inputs(rows)
        if plan.prefer is not None and not plan.hold:
            # A row of its key and time that passed may be forgotten: at the table, the late one must lose against it.
            seq = np.where(late & (inputs != plan.inputs.index(plan.prefer)), seq - _LOSES, seq)
        rows = with_system_fields(rows, seq=pa.array(seq))
        self._counts["late"] += int(np.count_nonzero(late))
        refused = late & (plan.hold or plan.late == "refuse")
        if refused.any():
            put_aside = self.late = rows.filter(pa.array(refused))
            self._counts["refused"] += put_aside.num_rows
            kept = ~refused
            rows, times, inputs, late = rows.filter(pa.array(kept)), times[kept], inputs[kept], late[kept]
        rows = rows.append_column(PANE, pa.array(times)).append_column(INPUT, pa.array(inputs))
        if plan.hold:
            self._held.add(rows)
            self._counts["held"] += rows.num_rows
            return self._own(rows.schema.empty_table())
        older = self._older(rows, times)
        keep = ~older & (late | self._once(rows, ~(late | older)))
        self._counts["superseded"] += int(np.count_nonzero(older))
        self._counts["repeats"] += int(np.count_nonzero(~(keep | older)))
        return self._own(rows.filter(pa.array(keep)))

    def _older(self, rows: pa.Table, times: Int64s) -> Mask:
        """Return which rows are older than one of their key that has passed, or that precedes them in the batch.

        A row that has passed is remembered until punctuation passes its time.
        """
        if not self._plan.newest:
            return np.zeros(len(times), dtype=np.bool_)
        mine = self._timed(rows)
        older = behind(mine)
        known = self._passed.tables(int(times.min()) + 1, HIGHEST) if len(times) else []
        return older | older_than(mine, self._timed(pa.concat_tables(known))) if known else older

    def _timed(self, rows: pa.Table) -> TimedKeys:
        columns = columns_at(rows, self._plan.key)
        return TimedKeys(columns, spark_hash(columns).astype(np.int64), rows.column(PANE).to_numpy())

    def _released(self, bound: int | None) -> list[pa.Table]:
        """Return the held rows that the low-watermark releases, by time and arrival, at most `flush_rows` of them."""
        plan = self._plan
        if bound is None:
            return []
        # Later rows have this time or a later one, so rows at the bound need not wait for one another (Bai et al.
        # §4.1), unless the preferred input may still bring one.
        last = HIGHEST if bound == ENDED else bound if plan.prefer is None else bound - 1
        after, after_seq = self._head.get("last", (LOWEST, -1))
        tables = [table for table in self._held.tables(after, last) if table.num_rows]
        if not tables:
            self._counts["due"] = 0
            self._head["promised"] = max(bound, self._promised)
            return []
        due = pa.concat_tables(tables)
        times, seq = due.column(PANE).to_numpy(), system_field(due, "seq").to_numpy()
        order = np.lexsort((seq, times))
        order = order[(times[order] > after) | (seq[order] > after_seq)]
        due, times, seq = due.take(pa.array(order)), times[order], seq[order]
        keep = self._admit(due).keep
        going = np.flatnonzero(keep)
        cut = (
            len(keep)
            if plan.flush_rows is None or len(going) <= plan.flush_rows
            else int(going[plan.flush_rows - 1]) + 1
        )
        rest = times[cut:]
        until = min(bound, int(rest[0])) if len(rest) else bound
        if cut:
            self._head["last"] = (int(times[cut - 1]), int(seq[cut - 1]))
            self._held.drop_below(int(times[cut - 1]) + (1 if until > int(times[cut - 1]) else 0))
        released = due.slice(0, cut).filter(pa.array(keep[:cut]))
        self._remember(released, until)
        self._counts["repeats"] += cut - released.num_rows
        self._counts["held"] -= cut
        self._counts["due"] = len(rest)
        self._head["promised"] = max(until, self._promised)
        return [self._own(released)]

    def _needs(self, bound: int | None, schema: pa.Schema) -> int | None:
        """Return the least low-watermark in µs that releases a row; None without one, or if times are bare numbers."""
        plan = self._plan
        if not plan.hold or plan.time is None or not self._counts["held"] or bound == ENDED:
            return None
        kind = schema.field(plan.time).type
        if (pa.types.is_integer(kind) or pa.types.is_floating(kind)) and plan.time_format is None:
            return None
        waits = 0 if plan.prefer is None else 1
        first = self._held.first_from(LOWEST if bound is None else bound + 1 - waits)
        if first is None:
            return None
        time = pa.array([in_order(first, kind)], kind)
        return int(event_time_us(time, plan.time_format, plan.time_zone)[0]) + waits

    @property
    def _promised(self) -> int:
        """The emitted low-watermark: no row below it passes in order any more."""
        return self._head.get("promised", LOWEST)

    def _admit(self, rows: pa.Table) -> AdmissionMasks:
        """Decide which rows pass, given the equal ones among them and among those that passed before."""
        return admitted(self._known(rows), self._memory(rows), self._plan.by, self._plan.repeats, self._prefer())

    @property
    def _forgets_keys(self) -> bool:
        """True if the shard forgets a key's rows when the key's own punctuation passes them."""
        return not self._plan.hold and set(self._plan.key) <= set(self._plan.by)

    def _forget(self) -> None:
        """Forget passed rows that are below their key's own low-watermark. This reads all remembered rows."""
        tables = self._passed.tables(LOWEST, HIGHEST)
        if tables:
            known = pa.concat_tables(tables)
            stays = known.column(PANE).to_numpy() >= self._keys.of(columns_at(known, self._plan.key))
            if not stays.all():
                self._passed.drop_below(HIGHEST)
                self._passed.add(known.filter(pa.array(stays)))

    def _once(self, rows: pa.Table, asked: Mask) -> Mask:
        keep = asked.copy()
        some = rows.filter(pa.array(asked))
        found = self._admit(some)
        keep[asked] = found.keep
        self._passed.add(self._known(some.filter(pa.array(found.remember))))
        return keep

    def _remember(self, released: pa.Table, until: int) -> None:
        """Remember released rows that later rows may still repeat."""
        some = released.filter(pa.array(released.column(PANE).to_numpy() >= until))
        found = self._admit(some)
        self._passed.add(self._known(some.filter(pa.array(found.remember))))

    def _known(self, rows: pa.Table) -> pa.Table:
        return rows.select([*self._plan.by, PANE, INPUT])

    def _memory(self, rows: pa.Table) -> pa.Table:
        nothing = no_memory(rows, self._plan.by)
        if rows.num_rows == 0 or self._plan.repeats == "keep":
            return nothing
        times = rows.column(PANE).to_numpy()
        found = self._passed.tables(int(times.min()), int(times.max()))
        return pa.concat_tables([table.cast(nothing.schema) for table in found]) if found else nothing

    def _prefer(self) -> int | None:
        return None if self._plan.prefer is None else self._plan.inputs.index(self._plan.prefer)

    @staticmethod
    def _own(rows: pa.Table) -> pa.Table:
        return rows.drop_columns([PANE, INPUT])

    def _inputs(self, rows: pa.Table) -> Int64s:
        """Return the number of each row's input, whose name is the prefix of the feed's."""
        if not self._plan.inputs:
            return np.zeros(rows.num_rows, dtype=np.int64)
        encoded = system_field(rows, "source").combine_chunks().dictionary_encode()
        feeds = encoded.dictionary.to_pylist()
        number = np.array([self._plan.inputs.index(str(feed).partition("/")[0]) for feed in feeds], dtype=np.int64)
        return number[encoded.indices.to_numpy(zero_copy_only=False)]

    @staticmethod
    def _times(rows: pa.Table, name: str) -> Int64s:
        column = rows.column(name)
        if column.null_count:
            raise MalformedRowError(
                f"{column.null_count} of {len(column)} rows have no time in {name!r}, so they have no place in the "
                "order",
                expected="a time in each row",
                hint="take such rows out before, and count them",
            )
        return ordered(column)

    def _hear(self, punctuation: pa.Table, time: str) -> None:
        at = bounds_in(punctuation.column(time), ordered)
        hear_all(punctuation, at, self._plan.key, self._feeds, self._keys)

    def _low_watermark(self) -> int | None:
        """Return the least bound of all feeds; None until each input has one."""
        heard = {feed.partition("/")[0] for feed in self._feeds.bounds}
        return None if set(self._plan.inputs) - heard else self._feeds.low_watermark

    def _punctuation(self, schema: pa.Schema, promised: int, now_us: int) -> pa.Table:
        assert self._plan.time is not None
        feed = f"{self._plan.name}/{self._number}"
        return punctuation_at(schema, self._plan.time, [feed], [promised], now_us).cast(schema)

    def _of_keys(self, schema: pa.Schema, time: str, now_us: int) -> pa.Table:
        """Return punctuation of keys whose low-watermark exceeds that of all, at most up to their first held row."""
        at = self._keys.entries[1]
        if self._plan.hold:
            after, after_seq = self._head.get("last", (LOWEST, -1))
            held = [table for table in self._held.tables(after, HIGHEST) if table.num_rows]
            if held:
                rows = pa.concat_tables(held)
                times = rows.column(PANE).to_numpy()
                here = (times > after) | (system_field(rows, "seq").to_numpy() > after_seq)
                columns = columns_at(rows.filter(pa.array(here)), self._plan.key)
                at = np.minimum(at, self._keys.least(columns, times[here]))
        due = self._keys.due(at, self._promised)
        if len(due) == 0:
            return schema.empty_table()
        keys = self._keys.entries[0].take(pa.array(due))
        feeds = self._shard.feeds(keys, f"{self._plan.name}/{self._number}")
        return punctuation_at(schema, time, feeds, at[due].tolist(), now_us, keys).cast(schema)

    def _fit(self, schema: pa.Schema) -> None:
        now = str(schema.remove_metadata())
        kept = self._columns
        same = self._head.get("schema", now) == now if kept is None else covers(schema, kept)
        if self._counts["held"] and not same:
            raise CheckpointError(
                f"rows with other columns are held in this checkpoint's {self._plan.name}: {self._head['schema']!r}",
                expected="the same columns, or more; now there are "
                + ", ".join(f"{field.name} {field.type}" for field in schema),
                hint="run the earlier query until it holds no rows, or start with a new checkpointLocation",
            )
        self._head["schema"] = now
        self._head["columns"] = base64.b64encode(schema.serialize().to_pybytes()).decode()
        self._columns = schema

    def _fitted(self, held: pa.Table) -> pa.Table:
        """Return held rows, with nulls in columns that were added later."""
        if self._columns is None:
            return held
        own = [held.schema.field(name) for name in (PANE, INPUT)]
        return with_nulls(held, pa.schema([*self._columns, *own]))

    def saved(self) -> dict[str, Any]:
        own = ("promised", "needs", "schema", "columns", "last")
        return {
            **{name: self._head[name] for name in own if name in self._head},
            **self._feeds.to_json(),
            "held_runs": self._held.known,
            "passed_runs": self._passed.known,
            "single": self._keys.save(),
        }
