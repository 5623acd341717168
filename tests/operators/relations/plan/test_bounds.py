import pyarrow as pa
import pytest
from kit.continuous import MOMENT, TRADE, bound, only, refused, relation
from kit.evaluated import changes, relation_at

from upstream.expressions.nodes import Call, Constant, Field
from upstream.language import Catalog
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.bounds import (
    UnboundedError,
    goes_on,
    never_changes,
    only_grows,
    state_of,
)
from upstream.operators.relations.plan.nodes import Join
from upstream.operators.relations.plan.periods import partners_of

S = 1_000_000
WITHIN = "a.t BETWEEN b.t AND b.t + INTERVAL '2' SECONDS"
VALUES = "a weight per value of px in each group"


def keeps(sql, kind):
    return [each.keeps for each in state_of(bound(sql).plan) if isinstance(each.node, kind)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("trade [RANGE 90 MINUTES]", "the rows of 90 minutes"),
        ("trade [RANGE 1 DAY SLIDE 1 HOUR]", "the rows of 1 day, until the next multiple of 1 hour"),
        ("trade [NOW]", "the rows of one instant"),
        ("trade [PARTITION BY sym, n ROWS 3]", "3 rows per (sym, n)"),
        ("trade [ROWS 1]", "1 row"),
        ("LATEST(buses)", "one row per (vehicle_id)"),
        ("Domains", "all rows of Domains"),
        ("trade", ""),
        ("TUMBLE(trade, t, INTERVAL '1' HOUR)", "the rows of 1 hour and of 1 hour more"),
        (
            "SESSION(buses, timestamp, INTERVAL '1' HOUR)",
            "the rows of open sessions, and of those that ended in the last 1 hour",
        ),
    ],
)
def test_windows(window, expected):
    assert keeps(f"SELECT COUNT(*) FROM {window}", nodes.WindowOver) == [expected]


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        (
            "SELECT sym, COUNT(*), SUM(px) FROM trade GROUP BY sym",
            nodes.GroupAggregates,
            "2 partial aggregates per (sym)",
        ),
        ("SELECT MAX(px) FROM trade", nodes.GroupAggregates, "1 partial aggregate per the whole"),
        ("SELECT MAX(px) FROM trade [NOW]", nodes.GroupAggregates, f"1 partial aggregate per the whole; {VALUES}"),
        ("SELECT DISTINCT sym FROM trade", nodes.Distinct, "a weight per distinct (sym)"),
        (
            "SELECT n FROM trade INTERSECT SELECT 1 FROM quote",
            nodes.SetOperation,
            "a weight of each side per distinct (n)",
        ),
        ("SELECT sym FROM trade UNION ALL SELECT sym FROM quote", nodes.SetOperation, ""),
        ("SELECT sym, n FROM trade ORDER BY n LIMIT 2", nodes.Top, "2 rows"),
        ("SELECT sym, n FROM trade [NOW] ORDER BY n LIMIT 2", nodes.Top, "the rows below it, in order"),
        ("RSTREAM(SELECT sym FROM trade [NOW])", nodes.Changes, "all rows of the relation"),
        ("SELECT sym FROM trade", nodes.Changes, ""),
    ],
)
def test_operators(sql, kind, expected):
    assert keeps(sql, kind) == [expected]


ENDS = "SELECT n, t, CAST(sym AS TIMESTAMP) AS e FROM trade"


@pytest.mark.parametrize(
    ("sql", "sides"),
    [
        ("SELECT S.URL FROM Requests S, Domains R WHERE S.domain = R.domain", ("none", "all")),
        ("SELECT a.sym FROM trade [NOW] a, quote [NOW] b WHERE a.sym = b.sym", ("all", "all")),
        (f"SELECT a.sym FROM trade a JOIN quote b ON {WITHIN}", (0, 2 * S)),
        ("SELECT sym FROM trade [NOW] WHERE sym IN (SELECT sym FROM quote)", ("all", "keys")),
        # A row that leaves takes its pairs with it: the other side is needed until then.
        (f"SELECT n FROM trade a JOIN quote [RANGE 9 SECONDS] b ON {WITHIN}", (9 * S, 2 * S)),
        (f"SELECT n FROM trade [ROWS 3] a JOIN quote [NOW] b ON {WITHIN}", ("all", "all")),
        # A row comes into a window that slides at the next multiple.
        (f"SELECT n FROM trade a, quote [RANGE 9 SECONDS SLIDE 3 SECONDS] b WHERE {WITHIN}", (12 * S, 2 * S)),
        ("SELECT domain FROM Domains WHERE domain NOT IN (SELECT domain FROM Requests [NOW])", ("all", "none")),
        (f"SELECT n FROM ({ENDS}) a JOIN quote b ON b.t BETWEEN a.t AND e", ("e", 0)),
    ],
)
def test_joins_keep_what_may_still_meet(sql, sides):
    found = [each for each in state_of(bound(sql).plan) if isinstance(each.node, nodes.Join)]
    assert [each.sides for each in found] == [sides]


@pytest.mark.parametrize(
    ("sql", "part", "at"),
    [
        ("SELECT unix_micros(t) AS u, COUNT(*) FROM trade GROUP BY 1", "GROUP BY", "trade"),
        ("SELECT date_trunc('DAY', t) AS d FROM trade UNION SELECT t FROM quote [NOW]", "UNION", "trade"),
        ("SELECT COUNT(DISTINCT t) FROM trade", "COUNT", "trade"),
        ("SELECT MEDIAN(unix_micros(t)) FROM trade", "MEDIAN", "trade"),
        ("SELECT * FROM trade UNION SELECT * FROM trade", "UNION", "trade"),
        ("SELECT * FROM trade [PARTITION BY t ROWS 1]", "a partition for each time", "[PARTITION BY t ROWS 1]"),
        ("SELECT a.sym FROM trade a JOIN quote [NOW] b USING (sym)", "the join", "trade a"),
        ("SELECT n FROM trade a JOIN LATEST(buses) b ON t BETWEEN timestamp AND timestamp", "the join", "trade a"),
        ("SELECT a.sym FROM trade [NOW] a JOIN quote b ON a.t >= b.t", "the join", "quote b"),
        ("SELECT sym FROM trade a WHERE EXISTS (SELECT 1 FROM quote b WHERE a.px < b.bid)", "the join", ""),
        ("SELECT sym FROM trade WHERE sym IN (SELECT sym FROM quote [NOW])", "the join", "trade"),
        ("SELECT t FROM trade [NOW] WHERE n IN (SELECT unix_micros(t) FROM quote)", "IN or EXISTS", "quote"),
        ("RSTREAM(SELECT sym FROM trade)", "RSTREAM", "trade"),
        ("SELECT n FROM trade EMIT PERIODIC INTERVAL '1' SECOND", "RSTREAM", "trade"),
        (f"SELECT n FROM trade a LEFT JOIN quote b ON {WITHIN} ORDER BY 1 LIMIT 1", "the first rows of an order", ""),
    ],
)
def test_plans_without_a_bound_are_refused_at_the_source(sql, part, at):
    refused(sql, part, "What to do", at=at)


def test_groups_of_a_window_of_time_have_a_bound():
    bound("SELECT t, COUNT(*) FROM trade [RANGE 1 HOUR] GROUP BY t")
    bound("SELECT window_end, COUNT(*) FROM TUMBLE(trade, t, INTERVAL '1' HOUR) GROUP BY window_end")


def test_a_join_of_three_streams_waits_for_the_pairs_of_two():
    plan = bound(
        "SELECT a.n FROM trade a JOIN quote b ON a.t BETWEEN b.t - INTERVAL '5' SECONDS AND b.t "
        "JOIN quote c ON c.t BETWEEN a.t AND a.t + INTERVAL '1' SECOND"
    ).plan
    # A pair of a and b may come 5 s after a, and so 5 s after c.
    assert [each.sides for each in state_of(plan) if isinstance(each.node, nodes.Join)] == [(5 * S, 0), (S, 5 * S)]


def test_the_error_has_the_operator_and_the_source():
    source = nodes.WindowOver(TRADE, nodes.UnboundedWindow())
    plan = nodes.Distinct(nodes.Project(source, (("t", Field("t", MOMENT)),)))
    with pytest.raises(UnboundedError) as caught:
        state_of(plan)
    assert (caught.value.node, caught.value.source) == (plan, source)


T = Field("t", MOMENT)
SECOND = 1_000_000


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (T, True),
        (Field("x", pa.int64()), False),
        (Call("date_trunc", (Constant("HOUR", pa.string()), T), MOMENT), True),
        (Call("hour", (T,), pa.int32()), False),
        (Call("gt", (T, T), pa.bool_()), False),
        (Constant(1, pa.int32()), False),
    ],
)
def test_columns_that_go_on_with_time(expression, expected):
    assert goes_on(expression, frozenset({"t"})) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("a.t BETWEEN b.t - INTERVAL '5' SECONDS AND b.t", (5 * SECOND, 0)),
        ("a.t BETWEEN b.t AND b.t + INTERVAL '5' SECONDS", (0, 5 * SECOND)),
        ("b.t + INTERVAL '2' SECONDS >= a.t AND a.t > b.t - INTERVAL '1' SECONDS", (SECOND, 2 * SECOND)),
        ("a.t = b.t", (0, 0)),
        ("a.t >= b.t AND a.t < b.t + INTERVAL '9' SECONDS AND a.t <= b.t + INTERVAL '3' SECONDS", (0, 3 * SECOND)),
        ("a.t + INTERVAL '1' SECONDS <= b.t AND b.t - INTERVAL '4' SECONDS <= a.t", (4 * SECOND, -SECOND)),
    ],
)
def test_conditions_on_both_times_bound_a_join(condition, expected):
    plan = relation(f"SELECT a.px FROM trade a JOIN quote b ON a.sym = b.sym AND {condition}")
    join = only(plan, Join)
    right = next(name for name in join.right.schema.names if name.rpartition(".")[2] == "t")
    after_left, after_right = expected
    found = partners_of(join, frozenset({"t"}), frozenset({right}))
    assert found == (("t", after_left), (right, after_right))
    found = partners_of(join, frozenset({"t"}), frozenset())
    assert found == (None, (right, after_right)), "any column may end a range, but only an event time may begin one"


def test_a_condition_that_bounds_one_side():
    plan = relation("SELECT a.px FROM trade [NOW] a JOIN quote [ROWS 2] b ON a.t <= b.t + INTERVAL '5' SECONDS")
    join = only(plan, Join)
    assert partners_of(join, frozenset({"t"}), frozenset({"b.t"})) == (None, ("b.t", 5 * SECOND))


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT domain FROM Domains GROUP BY domain", True),
        ("SELECT a.type FROM Domains AS a JOIN Domains AS b ON a.domain = b.domain", True),
        ("SELECT sym FROM trade [NOW] JOIN Domains ON sym = domain", False),
        ("SELECT domain FROM ISTREAM(SELECT domain FROM Domains) [NOW]", False),
    ],
)
def test_what_reads_stored_relations_alone_never_changes(sql, expected):
    assert never_changes(relation(sql)) == expected


CUSTOMERS = nodes.Stream("c", pa.schema({"k": pa.string(), "a": pa.int64()}), static=True)
ORDERS = nodes.Stream("o", pa.schema({"k": pa.string(), "n": pa.int64(), "t": MOMENT}), event_time="t")
GIVEN = {
    CUSTOMERS: [("x", 1), ("y", 2), ("z", 3), (None, 4)],
    ORDERS: [("x", 5, 2), ("x", 6, 4), ("y", 7, 5), ("w", 1, 6), (None, 2, 7)],
}


@pytest.mark.parametrize(
    ("sql", "grows", "rows"),
    [
        ("SELECT c.k FROM c LEFT JOIN o ON o.k = c.k WHERE o.k IS NULL", False, {"z": 1, None: 1}),
        ("SELECT c.k FROM o RIGHT JOIN c ON o.k = c.k WHERE o.k IS NULL", False, {"z": 1, None: 1}),
        ("SELECT c.k FROM o FULL JOIN c ON o.k = c.k WHERE n IS NULL", False, {"z": 1, None: 1}),
        ("SELECT c.k FROM c LEFT JOIN o [RANGE 1 MICROSECOND] ON o.k = c.k", False, {"x": 1, "y": 1, "z": 1, None: 1}),
        ("SELECT c.k FROM c ANTI JOIN o ON o.k = c.k", False, {"z": 1, None: 1}),
        ("SELECT k FROM c WHERE NOT EXISTS (SELECT 1 FROM o WHERE o.k = c.k)", False, {"z": 1, None: 1}),
        ("SELECT k FROM c WHERE k NOT IN (SELECT k FROM o WHERE n > 2)", False, {"z": 1}),
        ("SELECT k FROM c EXCEPT SELECT k FROM o", False, {"z": 1}),
        ("SELECT k FROM c WHERE a > (SELECT COUNT(*) FROM o WHERE o.k = c.k)", False, {"y": 1, "z": 1, None: 1}),
        ("SELECT o.k FROM c RIGHT JOIN o ON o.k = c.k", True, {"x": 2, "y": 1, "w": 1, None: 1}),
        ("SELECT o.k FROM o LEFT JOIN c ON o.k = c.k", True, {"x": 2, "y": 1, "w": 1, None: 1}),
        ("SELECT c.k FROM o JOIN c ON o.k = c.k", True, {"x": 2, "y": 1}),
        ("SELECT k FROM o EXCEPT ALL SELECT k FROM c", True, {"x": 1, "w": 1}),
    ],
)
def test_a_relation_from_which_rows_leave_does_not_only_grow(sql, grows, rows):
    catalog = Catalog().with_stream(CUSTOMERS).with_stream(ORDERS)
    plan = relation(sql, catalog)
    assert only_grows(plan) == grows
    for steps in (1, 3):
        found = changes(f"{sql} EMIT CHANGES", GIVEN, steps=steps)
        assert relation_at(found, 20) == {(k,): count for k, count in rows.items()}
        assert grows <= all(weight > 0 for *_, weight in found)
    # A row that a stored relation has leaves with its first partner: the result is a relation.
    assert isinstance(bound(sql, catalog).plan, nodes.Changes) == grows


@pytest.mark.parametrize(
    ("sql", "row"),
    [
        ("SELECT MIN(a) AS least FROM ({}) AS r", (3,)),
        ("{} ORDER BY a LIMIT 1", ("z", 3)),
        ("{} QUALIFY ROW_NUMBER() OVER (ORDER BY a) = 1", ("z", 3)),
    ],
)
@pytest.mark.parametrize("join", ["c LEFT JOIN o ON o.k = c.k", "o RIGHT JOIN c ON c.k = o.k"])
def test_rows_without_a_partner_are_those_of_an_anti_join(sql, row, join):
    catalog = Catalog().with_stream(CUSTOMERS).with_stream(ORDERS)
    sql = sql.format(f"SELECT c.k, a FROM {join} WHERE a < 9 AND o.k IS NULL AND c.k = c.k")
    assert only(relation(sql, catalog), Join).how == "anti"
    assert relation_at(changes(sql, GIVEN, steps=2), 20) == {row: 1}


def test_what_needs_rows_that_stay_is_refused_where_they_leave():
    catalog = Catalog().with_stream(CUSTOMERS).with_stream(ORDERS)
    sql = "SELECT c.k, n FROM c LEFT JOIN o ON o.k = c.k {} ORDER BY n LIMIT 1"
    for where in ("", "WHERE n IS NULL", "WHERE 1 / a > 0 AND o.k IS NULL"):
        refused(sql.format(where), "first rows of an order need all rows", catalog=catalog)
