"""A queue before costly columns: the same rows in the end, each computed once, in the order of the queue."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.expressions.nodes import Call, Constant, Field
from upstream.operators.queue.queue import ALL, Control
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.operator import Evaluable, computed
from upstream.operators.relations.plan.nodes import Latest, Node, Project, QueueProject, Stream, Where, WindowOver
from upstream.operators.relations.queue_project import ARRIVAL
from upstream.operators.relations.streams import TOMBSTONE
from upstream.operators.relations.zsets import TIME, WEIGHT
from upstream.operators.state.store import DictStore

SCHEMA = pa.schema([("k", pa.string()), ("at", pa.timestamp("us", "UTC")), ("v", pa.int64())])
STREAM = Stream("s", SCHEMA, ("k",), "at", updates=True)
V, K = Field("v", pa.int64()), Field("k", pa.string())
COLUMNS = (("id", K), ("w", Call("multiply", (V, Constant(10, pa.int64())), pa.int64())), ("v", V))


def is_above(least: int) -> Call:
    return Call("gt", (V, Constant(least, pa.int64())), pa.bool_())


def queue_of(policy: Any = "in-place", interval_us: int = 0, where: Call | None = None) -> QueueProject:
    newest = Where(WindowOver(STREAM, Latest()), is_above(0))
    return QueueProject(newest, COLUMNS, ("k",), policy, "q", interval_us, where)


@dataclass
class Run:
    """An evaluation, the table that its changes make, and the values that it has computed."""

    plan: Node
    store: DictStore = field(default_factory=DictStore)
    table: dict[str, tuple[int, int]] = field(default_factory=dict)
    computed: list[int] = field(default_factory=list)
    clock: int = 0
    tick: int = 0

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Continue from the store."""
        self.evaluation = Evaluation(self.store, self._compile, "arrival")
        self.evaluation.add("q", self.plan, collapse=True)

    def _compile(self, expression: Any, schema: pa.Schema) -> Evaluable:
        made = computed(expression, schema)
        if str(expression) != str(COLUMNS[1][1]):
            return made

        def evaluate(frame: pl.DataFrame) -> pl.Series:
            self.computed += frame.get_column("v").to_list()
            return made.evaluate(frame)

        return Evaluable(evaluate, made.columns, made.type, made.column, made.text)

    def step(self, rows: Sequence[tuple[str, int, int | None]] = (), budget: int | None = None, at: int = 0) -> Any:
        """Take rows (key, event time, value; None deletes), release at most `budget` keys, and return the figures."""
        self.clock = max(self.clock + 10, at)
        frame = pl.DataFrame(
            {
                "k": [key for key, _, _ in rows],
                "at": [time for _, time, _ in rows],
                "v": [0 if value is None else value for _, _, value in rows],
                TOMBSTONE: [value is None for _, _, value in rows],
                ARRIVAL: self.clock + np.arange(len(rows)) - len(rows),
            },
            schema={"k": pl.String, "at": pl.Int64, "v": pl.Int64, TOMBSTONE: pl.Boolean, ARRIVAL: pl.Int64},
        ).with_columns(pl.col("at").cast(pl.Datetime("us", "UTC")))
        control = Control(self.clock, budget, kept={"budget": ALL})
        found = self.evaluation.step({"s": frame}, 0, now=self.clock, queues={"q": control})
        assert not found.failed
        for row in found.changes["q"].sort(WEIGHT).iter_rows(named=True):
            result = row["w"], row["v"]
            if row[WEIGHT] < 0:
                assert self.table.pop(row["id"]) == result
            else:
                assert row["id"] not in self.table
                self.table[row["id"]] = result
        self.evaluation.save()
        self.changes = found.changes["q"]
        return found.queues["q"].report if "q" in found.queues else None


ROWS = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 30), st.none() | st.integers(-3, 9)), max_size=8)
STEPS = st.lists(st.tuples(ROWS, st.integers(0, 3)), min_size=1, max_size=8)


@given(STEPS, st.sampled_from(["in-place", "fifo", "linecutting", "auto"]), st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_table_is_that_without_a_queue_once_nothing_waits(steps, policy, restarts):
    queued, plain = Run(queue_of(policy)), Run(Project(queue_of().source, COLUMNS))
    for rows, budget in steps:
        queued.step(rows, budget)
        plain.step(rows)
        for key in queued.changes.filter(pl.col(WEIGHT) > 0).get_column("id"):
            assert queued.table[key] == plain.table[key], "a key that is served has its newest value"
        if restarts:
            queued.open()
    while queued.evaluation.waits:
        queued.step(budget=1)
    assert queued.table == plain.table


def test_a_key_that_changes_while_it_waits_is_computed_once():
    run = Run(queue_of())
    run.step([("a", 1, 1), ("b", 1, 2), ("c", 1, 3)], 1)
    assert run.table == {"a": (10, 1)}
    assert run.step([("b", 2, 4), ("b", 3, 5), ("a", 2, 6)], 1)["superseded"] == 2
    assert run.table == {"a": (10, 1), "b": (50, 5)}
    run.step(budget=1)
    run.step(budget=1)
    assert run.table == {"a": (60, 6), "b": (50, 5), "c": (30, 3)}
    assert run.computed == [1, 5, 3, 6], "in place: b and c waited before a came again; no value is computed twice"


def test_a_change_has_the_oldest_arrival_of_its_key():
    run = Run(queue_of())
    run.step([("a", 1, 1), ("b", 1, 2)], 0)
    arrived = run.clock - 1
    report = run.step([("b", 2, 4)], 1)
    assert (report["waiting"], report["oldest_us"], report["ready_at_us"]) == (1, arrived, 0)
    run.step(budget=1)
    assert run.changes.select("id", TIME).rows() == [("b", arrived)]


def test_a_batch_without_a_new_tick_has_the_budget_that_the_last_one_kept():
    run = Run(queue_of())
    control = Control(10, 0, kept={"budget": 2})
    rows = pl.DataFrame({"k": ["a", "b", "c"], "v": [1, 2, 3]}).with_columns(
        pl.lit(1).cast(pl.Datetime("us", "UTC")).alias("at"), pl.lit(5).alias(ARRIVAL)
    )
    first = run.evaluation.step({"s": rows}, 0, now=5, queues={"q": control})
    again = run.evaluation.step({}, 0, now=6, queues={"q": control})
    assert (first.changes["q"].height, again.changes["q"].height) == (0, 2)


def test_keys_are_served_by_their_weighted_ages():
    run = Run(replace(queue_of(), weight=V))
    run.step([("a", 1, 1), ("b", 1, 9), ("c", 1, 2)], 0)
    run.step(budget=1)
    assert [*run.table] == ["b"]
    run.step([("a", 2, 40), ("c", 2, None)], 1)
    assert [*run.table] == ["b", "a"], "a row that comes later has another weight"
    run.step([("b", 3, 3), ("d", 3, 8)], 1)
    assert [*run.table] == ["b", "a"], "c, whose removal has the weight of its last row"
    run.step(budget=1)
    assert [*run.table] == ["b", "a", "d"]


def test_no_key_yields_two_results_within_the_access_interval():
    run = Run(queue_of(interval_us=100))
    run.step([("a", 1, 1)], None)
    report = run.step([("a", 2, 2)], None)
    assert (run.table, report["ready_at_us"]) == ({"a": (10, 1)}, 110)
    run.step(at=109)
    assert run.table == {"a": (10, 1)}
    run.step(at=110)
    assert run.table == {"a": (20, 2)}


def test_rows_that_a_costly_condition_drops_are_not_computed():
    run = Run(queue_of(where=is_above(4)))
    run.step([("a", 1, 9), ("b", 1, 3)], 2)
    run.step([("a", 2, 2), ("b", 2, 8)], 2)
    assert (run.table, run.computed) == ({"b": (80, 8)}, [9, 8])


def test_the_state_is_removed_with_the_query():
    run = Run(queue_of())
    run.step([("a", 1, 1), ("b", 1, 2)], 1)
    run.evaluation.clear()
    assert run.store.values == {}


@pytest.mark.parametrize("rows", [0, 3])
def test_a_step_that_is_repeated_gives_the_same(rows):
    run = Run(queue_of("linecutting"))
    run.step([("a", 1, 1), ("b", 1, 2), ("c", 1, 3)], 1)
    found = []
    for _ in range(2):
        again = Run(run.plan, DictStore(), dict(run.table), clock=run.clock)
        again.store.values.update(run.store.values)
        again.open()
        report = again.step([("c", 2, 5), ("d", 2, 6), ("b", 2, 7)][:rows], 1)
        found.append((again.changes.rows(), report["places"], again.table))
    assert found[0] == found[1]
