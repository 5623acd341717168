"""Parts of a plan and their slots: what is gathered has one slot, the same in every process."""

from collections import Counter
from datetime import time, timedelta
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kit.continuous import CATALOG, END_US, EPOCH, FORMS, TRADE, bound, relation
from kit.placing import Divided

from upstream.expressions.nodes import Call, Constant, Field
from upstream.expressions.types import call, cast
from upstream.hosting.host_plan import result_of
from upstream.hosting.placement import (
    Cut,
    Fragment,
    Placement,
    Route,
    all_fields,
    loses_rows,
    pairs_of,
    placed,
    tracked,
)
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.plan.nodes import Changes, Join, Sample, Stream, walk
from upstream.operators.relations.plan.properties import key_of
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.relations.zsets import WEIGHT, dtypes_of
from upstream.operators.state.store import DictStore


def test_what_is_gathered_has_one_slot_that_depends_on_the_streams_or_on_the_plan():
    five, six = (relation(f"SELECT COUNT(*) AS n FROM trade [ROWS {n}]") for n in (5, 6))
    quotes = relation("SELECT COUNT(*) AS n FROM quote [ROWS 5]")
    route = (Route(TRADE, ()),)
    first = {n: [Fragment(each, route, ()).gathered_in(97) for each in (five, six, quotes)] for n in range(2)}
    assert first[0] == first[1]
    assert first[0][0] == first[0][1] != first[0][2]
    second = [Placement((), each).gathered_in(97) for each in (five, six, quotes)]
    assert len({*second}) == 3
    assert all(0 <= Placement((), each).gathered_in(2) < 2 for each in (five, six, quotes))


def test_the_slots_of_what_is_gathered_stay_the_same_for_good():
    plan = relation("SELECT COUNT(*) AS n FROM trade [ROWS 5]")
    assert Fragment(plan, (), ()).gathered_in(1000) == 74


# What the forms have not: parts by several keys, one stream by two columns, floats that are equal and look different.
NUMBERS = "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id"
PAIRS = "SELECT a.vehicle_id, b.vehicle_id AS other FROM LATEST(buses) a JOIN LATEST(buses) b"
A, B = "trade [RANGE 1 HOUR] a", "quote [RANGE 1 HOUR] b"
CAME = "ISTREAM(SELECT sym, n FROM trade [RANGE 1 HOUR])"
MORE = (
    "SELECT vehicle_id, bid FROM LATEST(buses) JOIN quote [PARTITION BY sym ROWS 1] ON route_id = sym EMIT CHANGES",
    f"{PAIRS} ON a.route_id = b.vehicle_id",
    f"{PAIRS} ON a.route_id = b.route_id",
    f"SELECT a.vehicle_id, b.n FROM LATEST(buses) a JOIN ({NUMBERS}) b ON a.route_id = b.route_id",
    f"SELECT n, COUNT(*) AS c FROM ({NUMBERS}) GROUP BY n",
    "SELECT speed FROM LATEST(buses) WHERE speed > 1",
    "SELECT COUNT(*) AS n, MAX(speed) AS s FROM LATEST(buses)",
    "SELECT * FROM LATEST(buses) ORDER BY speed DESC LIMIT 2",
    "SELECT route_id, speed FROM LATEST(buses) QUALIFY ROW_NUMBER() OVER (PARTITION BY route_id ORDER BY speed) = 1",
    "SELECT sym FROM trade [NOW] UNION ALL SELECT sym FROM quote [ROWS 2] EMIT CHANGES",
    "SELECT px FROM trade [NOW] UNION ALL SELECT bid FROM quote [RANGE 1 HOUR] EMIT CHANGES",
    "SELECT * FROM trade [ROWS 2] EMIT CHANGES",
    "RSTREAM(SELECT sym, px FROM trade [RANGE 1 HOUR])",
    "ISTREAM(SELECT px FROM trade [RANGE 1 MINUTE])",
    "DSTREAM(SELECT n FROM trade [PARTITION BY sym ROWS 1])",
    "SELECT CAST(px AS STRING) AS s, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY CAST(px AS STRING)",
    "SELECT px IS NULL AS e, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY px IS NULL",
    "SELECT px, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY px",
    "SELECT upper(sym) AS u, COUNT(*) AS n FROM (SELECT DISTINCT sym FROM trade [RANGE 1 HOUR]) GROUP BY upper(sym)",
    "SELECT upper(sym) AS u, SUM(n) AS n FROM trade [RANGE 1 HOUR] GROUP BY upper(sym)",
    "SELECT 10 / n AS x, COUNT(*) AS c FROM trade [RANGE 1 HOUR] WHERE n > 0 GROUP BY 10 / n",
    f"SELECT sym, px FROM {A} WHERE px NOT IN (SELECT bid FROM {B} WHERE b.sym = a.sym) EMIT CHANGES",
    f"SELECT a.sym, b.sym AS other FROM {A} FULL JOIN {B} ON a.sym = b.sym EMIT CHANGES",
    f"SELECT b.sym, COUNT(*) AS n FROM {A} LEFT JOIN {B} ON a.sym = b.sym GROUP BY b.sym",
    f"SELECT a.px, b.px AS q FROM {A} JOIN trade [RANGE 1 MINUTE] b ON a.px = b.px EMIT CHANGES",
    f"SELECT a.sym, b.sym AS q FROM {A} JOIN trade [RANGE 1 HOUR] b ON a.n = b.px EMIT CHANGES",
    "SELECT d.type, COUNT(*) AS n FROM Requests [RANGE 1 HOUR] r JOIN Domains d ON r.domain = d.domain GROUP BY d.type",
    "SELECT r.client_id, d.type FROM Requests [RANGE 1 HOUR] r LEFT JOIN Domains d ON r.domain = d.domain EMIT CHANGES",
    "SELECT d.domain FROM Domains d LEFT JOIN Requests r ON r.domain = d.domain WHERE r.domain IS NULL",
    "SELECT d.type, r.client_id FROM Requests r FULL JOIN Domains d ON r.domain = d.domain EMIT CHANGES",
    "SELECT domain FROM Domains EXCEPT SELECT domain FROM Requests",
    "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) WHERE timestamp < now() - INTERVAL 1 MINUTE GROUP BY route_id",
    f"SELECT x.sym, COUNT(*) AS c FROM {CAME} [PARTITION BY sym ROWS 2] x GROUP BY x.sym",
    f"SELECT x.n FROM {CAME} [ROWS 2] AS x EMIT CHANGES",
    "SELECT window_end, n, COUNT(*) AS c FROM HOP(trade, t, INTERVAL '1' MINUTE, INTERVAL '1' HOUR) GROUP BY 1, n",
    "SELECT sym, n FROM trade [RANGE 1 HOUR] EXCEPT ALL SELECT sym, n FROM trade [RANGE 1 MINUTE] EMIT CHANGES",
)


def plan_of(sql):
    return shareable(result_of(bound(sql).plan).plan)


PLANS = {sql: plan_of(sql) for sql in (*FORMS, *MORE)}
Steps = list[tuple[dict[str, pl.DataFrame], int]]


def arrivals_of(rows, chosen):
    """Let rows arrive in any order and any split that low-watermarks admit, numbered by the order of their origin."""
    waiting: list[tuple[str, int, int]] = []
    numbered: dict[str, pl.DataFrame] = {}
    for name, frame in rows.items():
        count = frame.height
        dead = pl.Series(TOMBSTONE, chosen.random(count) < 0.15, dtype=pl.Boolean)
        numbered[name] = frame.with_columns(pl.Series(SEQUENCE, np.arange(count), dtype=pl.Int64), dead)
        event_time = CATALOG.streams[name].event_time
        times = frame.get_column(event_time).dt.epoch("us").to_list() if event_time else [-1] * count
        waiting += [(name, at, time) for at, time in enumerate(times) if time is not None]
    waiting = [waiting[at] for at in chosen.permutation(len(waiting))]
    # A stored relation is there from the beginning.
    now = [each for each in waiting if each[2] == -1]
    waiting = [each for each in waiting if each[2] != -1]
    steps: Steps = []
    bound_us = int(EPOCH.timestamp() * 1_000_000) - 1
    while True:
        size = int(chosen.integers(0, len(waiting) + 1))
        now, waiting = now + waiting[:size], waiting[size:]
        least = min((time for _, _, time in waiting), default=END_US)
        bound_us = max(bound_us, int(chosen.integers(bound_us, least + 1))) if waiting else END_US
        taken = {name: frame[[at for of, at, _ in now if of == name]] for name, frame in numbered.items()}
        steps.append((taken, bound_us))
        if not waiting:
            return steps
        now = []


def counted(changes):
    """Return the changes as a multiset of rows with their times."""
    counts: Counter[tuple[Any, ...]] = Counter()
    for *row, weight in changes.select(pl.exclude(WEIGHT), WEIGHT).rows():
        counts[tuple("nan" if value != value else value for value in row)] += weight
    return Counter({row: count for row, count in counts.items() if count})


def assert_together(plan, divided):
    """Check that no two slots have changes of one key."""
    key = key_of(plan)
    if key is None:
        return
    slots_of_key: dict[tuple[Any, ...], set[int]] = {}
    for step in divided.apart:
        for slot, changes in enumerate(step):
            for each in changes.select(pl.lit(0), *(pl.col(name) for name in key)).rows():
                slots_of_key.setdefault(tuple("nan" if value != value else value for value in each), set()).add(slot)
    assert all(len(slots) == 1 for slots in slots_of_key.values())


@pytest.mark.parametrize("sql", PLANS)
@settings(max_examples=3)
@given(seed=st.integers(0, 1 << 32), first=st.integers(1, 5), second=st.integers(1, 5))
@example(seed=7, first=3, second=4)
def test_all_slots_together_give_what_one_evaluation_gives_step_by_step(sql, seed, first, second):
    plan, chosen = PLANS[sql], np.random.default_rng(seed)
    placement = placed(plan)
    divided = Divided(placement, first, second)
    whole = Evaluation(DictStore())
    whole.add("q", plan)
    for rows, low_watermark in arrivals_of(many_rows(chosen, [*FLOATS, float("nan")]), chosen):
        outcome = whole.step(rows, low_watermark)
        assert not outcome.failed, outcome.failed
        found = divided.step(rows, low_watermark)
        assert counted(found) == counted(outcome.changes["q"]), placement
    if placement.together and not isinstance(plan, Changes):
        assert_together(plan, divided)


FLOATS = [0.0, -0.0, 2.0, 12.0, None]


def many_rows(chosen, floats):
    """Return rows with few values, among them floats that are equal and look different."""
    values: dict[Any, list[Any]] = {
        pl.String(): ["a", "b", "c", "d", None],
        pl.Float64(): floats,
        pl.Int64(): [0, 1, 2, 11, None],
        pl.Time(): [time(0), time(8, 30), time(23, 59, 59, 999_999), None],
        pl.Datetime("us", "UTC"): [EPOCH + timedelta(minutes=each) for each in (0, 0, 1, 2, 7, 59, 60, 61, 150)],
    }

    def column(dtype):
        return pl.Series([values[dtype][at] for at in chosen.integers(len(values[dtype]), size=9)], dtype=dtype)

    return {
        name: pl.DataFrame({each: column(dtype) for each, dtype in dtypes_of(stream.schema).items()})
        for name, stream in CATALOG.streams.items()
    }


def ways_of(placement):
    return [
        (
            {route.stream.name: [str(each) for each in route.by] for route in fragment.routes},
            None if fragment.onward is None else [str(each) for each in fragment.onward],
        )
        for fragment in placement.fragments
    ]


@pytest.mark.parametrize(
    ("sql", "ways"),
    [
        ("SELECT sym, MAX(px) AS m FROM trade [RANGE 1 HOUR] GROUP BY sym", [({"trade": ["sym"]}, None)]),
        ("SELECT vehicle_id, speed FROM LATEST(buses)", [({"buses": ["vehicle_id"]}, None)]),
        ("SELECT speed FROM buses [NOW] WHERE speed > 1", [({"buses": ["vehicle_id"]}, None)]),
        (NUMBERS, [({"buses": ["vehicle_id"]}, ["route_id"])]),
        ("SELECT COUNT(*) AS n FROM LATEST(buses)", [({"buses": ["vehicle_id"]}, [])]),
        ("SELECT COUNT(*) AS n FROM trade [ROWS 5]", [({"trade": []}, None)]),
        (
            "SELECT a.n, b.sym FROM trade [RANGE 1 HOUR] a JOIN trade [RANGE 1 HOUR] b ON a.sym = b.sym",
            [({"trade": ["sym"]}, None)],
        ),
        (
            "SELECT d.type, COUNT(*) AS n FROM Requests [NOW] r JOIN Domains d ON r.domain = d.domain GROUP BY d.type",
            [({"Domains": ["domain"], "Requests": ["domain"]}, ["type"])],
        ),
        # What needs a third set of values is gathered in the second stage.
        (f"SELECT n, COUNT(*) AS c FROM ({NUMBERS}) GROUP BY n", [({"buses": ["vehicle_id"]}, [])]),
    ],
)
def test_rows_go_by_what_the_plan_needs_together(sql, ways):
    assert ways_of(placed(shareable(relation(sql)))) == ways


def test_one_stream_goes_two_ways_for_a_join_by_two_columns():
    placement = placed(shareable(relation(f"{PAIRS} ON a.route_id = b.vehicle_id")))
    assert sorted(onward or [] for _, onward in ways_of(placement)) == [["route_id"], ["vehicle_id|"]]
    assert {str(routes) for routes, _ in ways_of(placement)} == {"{'buses': ['vehicle_id']}"}
    assert not placement.together


def test_each_change_matters_below_a_stream_of_changes_only():
    assert [each.every_change for each in placed(shareable(relation(NUMBERS))).fragments] == [False]
    assert [each.every_change for each in placed(shareable(bound(f"ISTREAM({NUMBERS})").plan)).fragments] == [True]


def test_equal_rows_meet_before_they_are_numbered_or_taken_for_changes():
    newest = placed(plan_of("SELECT speed FROM LATEST(buses)"))
    assert ways_of(newest) == [({"buses": ["vehicle_id"]}, ["speed"])]
    left = placed(plan_of("DSTREAM(SELECT speed FROM buses [RANGE 1 HOUR])"))
    assert ways_of(left) == [({"buses": ["speed"]}, None)]


def test_a_sample_of_changes_is_not_divided():
    plan = PLANS[next(each for each in FORMS if "AS s TABLESAMPLE" in each)]
    assert any(isinstance(each, Sample) and isinstance(each.source, Changes) for each in walk(plan))
    assert [onward for _, onward in ways_of(placed(plan))] == [[]]


def test_values_of_which_there_are_few_do_not_divide():
    sql = "SELECT px > 1 AS b, CASE WHEN n > 1 THEN 'x' ELSE 'y' END AS c FROM trade [RANGE 1 HOUR] EMIT CHANGES"
    ((routes, onward),) = ways_of(placed(plan_of(sql)))
    assert routes == {"trade": ["sym", "px", "n", "t"]}
    assert onward is not None and len(onward) == 2


TEXT = pa.string()


def led(sql, expression):
    """Return what an expression over a relation is over its streams."""
    found = tracked(relation(sql), expression, Cut(lambda node: isinstance(node, Stream)))
    return None if found is None else [str(each) for _, each in found]


JOIN = "SELECT a.sym AS x, b.sym AS y, bid, px FROM trade [RANGE 1 HOUR] a {} JOIN quote [NOW] b ON a.sym = b.sym"


@pytest.mark.parametrize(
    ("how", "left", "right"),
    [("", True, True), ("LEFT", True, False), ("RIGHT", False, True), ("FULL", False, False)],
)
def test_of_an_outer_join_the_side_whose_rows_are_always_there_places(how, left, right):
    sql = JOIN.format(how)
    assert led(sql, Field("x", TEXT)) == (["sym", "sym"] if left else None)
    assert led(sql, Field("y", TEXT)) == (["sym", "sym"] if right else None)
    assert led(sql, Field("px", pa.float64())) is None


def test_of_a_full_join_what_one_side_has_places():
    x, y = Field("x", TEXT), Field("y", TEXT)
    for pair in ((x, y), (y, x)):
        assert led(JOIN.format("FULL"), Call("coalesce", pair, TEXT)) == ["sym", "sym"]


def test_groups_lead_on_what_makes_them():
    sql = "SELECT sym, upper(sym) AS u, MAX(px) AS m FROM trade [RANGE 1 HOUR] GROUP BY sym, upper(sym)"
    assert led(sql, Field("u", TEXT)) == ["upper(sym)"]
    assert led(sql, call("lower", [Field("sym", TEXT)])) == ["lower(sym)"]
    assert led(sql, Field("m", pa.float64())) is None


def test_texts_of_equal_floats_do_not_place():
    px = Field("px", pa.float64())
    text = Call("greatest", (cast(px, pa.float64()), Constant(1.0, pa.float64())), pa.float64())
    grouped = "SELECT px FROM trade [RANGE 1 HOUR] GROUP BY px"
    assert led(grouped, px) == ["px"]
    assert led(grouped, text) is None
    assert led("SELECT px FROM trade [RANGE 1 HOUR]", text) == [str(text)]


def test_what_can_fail_does_not_place_nor_do_constants_and_lists():
    plan = "SELECT n, sym FROM trade [RANGE 1 HOUR]"
    assert led(plan, Field("n", pa.int64())) == ["n"]
    assert led(plan, call("divide", [Constant(1, pa.int64()), Field("n", pa.int64())])) is None
    assert led(plan, Constant(1, pa.int64())) is None
    assert led(plan, Call("array", (Field("sym", TEXT),), pa.list_(TEXT))) is None


def test_windows_of_rows_lead_on_their_partitions_and_ends_of_windows_nowhere():
    rows = "SELECT sym, n FROM trade [PARTITION BY sym ROWS 2]"
    assert led(rows, Field("sym", TEXT)) == ["sym"]
    assert led(rows, Field("n", pa.int64())) is None
    sessions = "SELECT sym, n, window_end FROM SESSION(trade PARTITION BY sym, t, INTERVAL '1' HOUR)"
    assert led(sessions, Field("sym", TEXT)) == ["sym"]
    assert led(sessions, Field("n", pa.int64())) is None
    tumbled = "SELECT window_end, sym FROM TUMBLE(trade, t, INTERVAL '1' HOUR)"
    assert led(tumbled, Field("sym", TEXT)) == ["sym"]
    assert led(tumbled, Field("window_end", pa.timestamp("us", "UTC"))) is None


def test_tracking_ends_at_the_cut():
    plan = relation("SELECT sym, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY sym")
    n = Field("n", pa.int64())
    assert tracked(plan, n, Cut(lambda node: node is plan)) == [(plan, n)]
    assert all_fields(plan) == (Field("sym", TEXT), n)


def test_not_in_compares_all_rows_and_correlates_by_the_rest():
    def the_join(plan):
        return next(each for each in walk(plan) if isinstance(each, Join))

    alone = bound("SELECT sym FROM trade [NOW] WHERE sym NOT IN (SELECT sym FROM quote [NOW])").plan
    assert pairs_of(the_join(alone)) == ()
    correlated = "SELECT sym FROM trade [NOW] a WHERE px NOT IN (SELECT bid FROM quote [NOW] b WHERE b.sym = a.sym)"
    assert [str(one) for one, _ in pairs_of(the_join(bound(correlated).plan))] == ["sym"]


def test_it_is_known_whether_rows_leave():
    assert loses_rows(relation("SELECT sym FROM trade [NOW]"))
    assert not loses_rows(relation("SELECT sym FROM trade"))
