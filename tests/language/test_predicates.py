import pytest
from kit.continuous import only, relation
from kit.refusals import refusals
from sqlglot import exp

from upstream.language.dialect import parse
from upstream.language.predicates import is_value
from upstream.operators.relations.plan.nodes import Join, Where, walk

OUTER = "SELECT a.sym FROM trade [NOW] AS a WHERE {}"
INNER = "quote [RANGE 1 HOUR] AS b"


def join_of(condition: str) -> Join:
    return only(relation(OUTER.format(condition)), Join)


@pytest.mark.parametrize(
    ("condition", "how"),
    [
        (f"a.sym IN (SELECT sym FROM {INNER})", "semi"),
        (f"(NOT ((NOT a.sym IN (SELECT sym FROM {INNER}))))", "semi"),
        (f"a.sym NOT IN (SELECT sym FROM {INNER})", "null_aware_anti"),
        (f"NOT (a.sym IN (SELECT sym FROM {INNER}))", "null_aware_anti"),
        (f"EXISTS (SELECT 1 FROM {INNER} WHERE b.sym = a.sym)", "semi"),
        (f"NOT EXISTS (SELECT 1 FROM {INNER} WHERE b.sym = a.sym)", "anti"),
        (f"EXISTS (SELECT 1 FROM {INNER})", "semi"),
    ],
)
def test_kinds(condition, how):
    made = join_of(condition)
    assert made.how == how
    assert [str(one) for one, _ in made.on] == ["sym"] * ("sym" in condition)
    assert made.condition is None
    assert len(made.right.schema.names) == 1
    assert made.schema == made.left.schema


def test_correlated_conditions_are_pairs_and_the_rest_after_what_is_compared():
    made = join_of(f"EXISTS (SELECT * FROM {INNER} WHERE b.sym = a.sym AND b.bid > a.px AND b.bid > 3)")
    assert [str(one) for one, _ in made.on] == ["sym"]
    assert str(made.condition).endswith("> px)")
    assert str(only(made.right, Where).condition) == "(bid > 3.0)"
    assert len(made.right.schema.names) == 2
    made = join_of(f"a.px NOT IN (SELECT bid FROM {INNER} WHERE b.sym = a.sym)")
    assert made.how == "null_aware_anti"
    assert [str(one) for one, _ in made.on] == ["px", "sym"]


def test_in_of_several_columns_and_of_types_that_differ():
    pairs = join_of(f"(a.sym, a.n) IN (SELECT sym, bid FROM {INNER})").on
    assert [str(one) for one, _ in pairs] == ["sym", "cast(n AS DOUBLE)"]
    grouped = join_of(f"a.n IN (SELECT MAX(bid) FROM {INNER} GROUP BY sym HAVING COUNT(*) > 1)")
    assert grouped.how == "semi"


def test_several_and_nested_subqueries():
    plan = relation(
        OUTER.format(
            f"n > 1 AND sym IN (SELECT sym FROM {INNER} WHERE EXISTS (SELECT 1 FROM trade [NOW] AS c WHERE px = bid)) "
            f"AND NOT EXISTS (SELECT 1 FROM {INNER} WHERE b.bid = a.px)"
        )
    )
    assert sorted(each.how for each in walk(plan) if isinstance(each, Join)) == ["anti", "semi", "semi"]


test_predicates_that_are_refused = refusals(
    (f"a.n = 1 OR a.sym IN (SELECT sym FROM {INNER})", "not supported in WHERE", ""),
    (f"a.sym IN (SELECT sym, bid FROM {INNER})", "IN compares 1 with 2 columns", ""),
    (f"(a.sym, n, px, px) NOT IN (SELECT sym, bid, bid, bid FROM {INNER})", "in 81 ways", ""),
    (f"a.sym IN (SELECT a.sym FROM {INNER})", "not supported in this SELECT", "a.sym"),
    (f"a.t IN (SELECT bid FROM {INNER})", "", ""),
    (f"EXISTS (SELECT nothing FROM {INNER})", "there is no column 'nothing'", "nothing"),
    (f"EXISTS (SELECT COUNT(*) FROM {INNER} WHERE b.sym = a.sym)", "there is no source 'a'", "a.sym"),
    ("EXISTS (SELECT 1 FROM (SELECT * FROM quote [NOW] WHERE sym = a.sym) x)", "there is no source 'a'", "a.sym"),
    of=OUTER,
)


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT MAX(x) FROM s", True),
        ("SELECT MAX(x) + 1 AS m FROM s WHERE y > 2", True),
        ("SELECT MAX(x) FROM s GROUP BY y", False),
        ("SELECT MAX(x) FROM s HAVING MAX(x) > 1", False),
        ("SELECT x FROM s", False),
        ("SELECT MAX(x) FROM s UNION SELECT MAX(x) FROM s", False),
    ],
)
def test_one_row_have_aggregates_without_groups(sql, expected):
    tree = parse(sql)
    assert isinstance(tree, exp.Query)
    assert is_value(tree) == expected


test_values_that_are_refused = refusals(
    (f"(SELECT bid FROM {INNER} WHERE b.sym = a.sym)", "can have several rows", "bid"),
    (f"(SELECT MAX(bid) FROM {INNER} GROUP BY b.sym)", "has no GROUP BY", "GROUP BY b.sym"),
    (f"(SELECT MAX(bid) FROM {INNER} LIMIT 1)", "has no LIMIT", ""),
    (f"(SELECT MAX(bid), MIN(bid) FROM {INNER})", "has one column", ""),
    (f"(SELECT * FROM {INNER})", "has one column", ""),
    (f"(SELECT MAX(bid) FROM {INNER} WHERE b.sym > a.sym)", "by = alone", "b.sym > a.sym"),
    (f"(SELECT MAX(bid) FROM {INNER} WHERE b.sym = a.sym OR bid > 1)", "by = alone", "b.sym = a.sym OR bid > 1"),
    (f"(SELECT MAX(bid - a.px) FROM {INNER})", "over a column of the query around", "MAX(bid - a.px)"),
    (f"(SELECT MAX(bid) + bid FROM {INNER})", "'bid' is neither", "bid"),
    (f"SIZE((SELECT COLLECT_SET(bid) FROM {INNER} WHERE b.sym = a.sym))", "COLLECT_SET", ""),
    (f"(SELECT MAX(bid) FROM {INNER} UNION SELECT MIN(bid) FROM {INNER})", "one SELECT of an aggregate", ""),
    of="SELECT sym FROM trade [NOW] AS a WHERE px > {}",
)
TOP = f"(SELECT MAX(bid) FROM {INNER})"
OF_A = f"(SELECT MAX(bid) FROM {INNER} WHERE b.sym = a.sym)"
test_where_values_cannot_stand = refusals(
    (f"SELECT sym, {OF_A} AS m FROM trade [NOW] AS a GROUP BY sym", "cannot read the query around", "b.sym = a.sym"),
    (f"SELECT SUM(n - {TOP}) AS s FROM trade [NOW]", "inside of SUM", ""),
    (f"SELECT sym FROM trade [NOW] ORDER BY {TOP} LIMIT 3", "not a value in ORDER BY", ""),
    (f"SELECT sym FROM trade AS a WHERE px > {OF_A}", "would keep each row", "trade AS a"),
)
