import pyarrow as pa
import pytest
from kit.continuous import MOMENT, only, relation

from upstream.expressions.nodes import Call, Constant, Field
from upstream.operators.relations.plan.bounds import goes_on, never_changes, partners_of
from upstream.operators.relations.plan.nodes import Join

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
    assert partners_of(join, frozenset({"t"}), frozenset()) == (None, None)


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
