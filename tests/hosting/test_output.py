import numpy as np
import polars as pl
import pyarrow as pa
from kit.hosting import Versions, result_table

from upstream.hosting.evaluations import PlanEvaluation, StepResult
from upstream.hosting.host_plan import HostPlan
from upstream.hosting.messages import Outbox
from upstream.hosting.output import DeferredChanges, KnownQueries, OutputControl, ResultOutput
from upstream.hosting.results import Stamp
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT
from upstream.operators.state.store import DictStore

COUNTS = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
PLAN = HostPlan.of(Versions({1: {"q": (7, COUNTS), "r": (8, COUNTS)}})(1), range(4))
STAMP = Stamp(3, 1, 4, 90, 80)


def sent(known, deferred=None, served=None):
    out = Outbox(PLAN.slots)
    return ResultOutput(PLAN, known, out, deferred or DeferredChanges(DictStore(), {}), served), out


def counted(n, weight=1):
    return pl.DataFrame({"route_id": ["a"], "n": [n], TIME: [5], WEIGHT: [weight]})


def left(out):
    return [
        (
            OutputControl.of(row["control"]),
            [] if row["frame"] is None else result_table(row["frame"]).column("n").to_pylist(),
        )
        for row in out.table().to_pylist()
    ]


def begun():
    known = KnownQueries({})
    known.follow(PLAN)
    return known


def test_a_control_is_read_as_it_was_written():
    for each in (
        OutputControl("rows", 7, "q", 2),
        OutputControl("begun", 7, "q", whole_from=BEGINNING),
        OutputControl("begun", 7, "q"),
        OutputControl("failed", 7, "q", reason='a "b"'),
        OutputControl("late", name="s", count=3, queries=(1, 2)),
    ):
        assert OutputControl.of(each.control()) == each
    assert OutputControl("rows", 7, "q").control() == '{"kind":"rows","name":"q","query":7}'


def test_rows_of_a_query_go_to_one_slot_whatever_shard_they_come_from():
    results, out = sent(begun())
    changes = pl.DataFrame({"route_id": ["a"], "n": [1], TIME: [5], WEIGHT: [1]})
    for shard in range(4):
        results.take(PLAN.queries[7], changes, Stamp(3, shard, 4, 90, 80))
    table = out.table()
    assert len(set(table.column("slot").to_pylist())) == 1
    assert result_table(table.column("frame")[0].as_py()).column("n").to_pylist() == [1]
    assert OutputControl.of(table.column("control")[0].as_py()) == OutputControl("rows", 7, "q")


def test_slots_of_queries_differ():
    results, out = sent(begun())
    plan = HostPlan.of(Versions({1: {f"q{at}": (at, COUNTS) for at in range(40)}})(1), range(4))
    for query in plan.queries.values():
        results.begin(query, None, None)
    counts = np.bincount(out.table().column("slot").to_numpy(), minlength=4)
    assert (counts > 3).all()


def test_a_query_whose_rows_have_one_key_fails_and_says_so_until_it_is_gone():
    known = begun()
    results, out = sent(known)
    twice = pl.DataFrame({"route_id": ["a", "a"], "n": [1, 2], TIME: [5, 5], WEIGHT: [1, 1]})
    results.take(PLAN.queries[7], twice, STAMP)
    results.close(STAMP)
    (control,) = out.table().column("control").to_pylist()
    leaving = OutputControl.of(control)
    assert (leaving.kind, leaving.query, leaving.name) == ("failed", 7, "q")
    assert "one key (row_key)" in leaving.reason
    assert [each.id for each in known.running(PLAN)] == [8]


def test_late_rows_are_counted_for_the_queries_that_miss_them():
    results, out = sent(begun())
    query = PLAN.queries[7]
    jobs = [
        PlanEvaluation("a", query.result.plan, (query, PLAN.queries[8])),
        PlanEvaluation("b", query.result.plan, (query,)),
    ]
    results.late(query.domain, jobs, StepResult(late={"buses": 2}))
    (control,) = out.table().column("control").to_pylist()
    assert OutputControl.of(control) == OutputControl("late", name="buses", count=2, queries=(7, 8))
    assert out.table().column("frame").null_count == 1
    assert out.table().schema.field("frame").type == pa.binary()


def test_results_of_queries_that_are_not_served_wait_until_they_are():
    known, store = begun(), DictStore()
    deferred = DeferredChanges(store, {})
    results, out = sent(known, deferred, frozenset([8]))
    results.take(PLAN.queries[7], counted(1), Stamp(3, 1, 4, 90, 80))
    results.take(PLAN.queries[8], counted(1), Stamp(3, 1, 4, 90, 80))
    results.close(STAMP)
    assert left(out) == [
        (OutputControl("rows", 8, "r"), [1]),
        (OutputControl("waiting", queries=(7,), since=(80,)), []),
    ]
    results, out = sent(known, deferred, frozenset([7]))
    results.take(PLAN.queries[7], pl.concat([counted(1, -1), counted(2)]), Stamp(4, 1, 4, 95, 94))
    results.close(Stamp(4, 1, 4, 95, 95))
    assert left(out) == [(OutputControl("rows", 7, "q"), [2])]
    system = result_table(out.table().column("frame")[0].as_py()).column("_upstream")[0].as_py()
    assert system["first_arrival"].timestamp() * 1e6 == 80
    assert store.values == {}


def test_what_waits_of_a_query_that_fails_is_forgotten():
    known, store = begun(), DictStore()
    deferred = DeferredChanges(store, {})
    results, _ = sent(known, deferred, frozenset())
    results.take(PLAN.queries[7], counted(1), STAMP)
    known.fail([7], "no")
    results, out = sent(known, deferred)
    results.close(STAMP)
    assert [leaving.kind for leaving, _ in left(out)] == ["failed"]
    assert store.values == {}
