import pytest
from kit.continuous import only, relation

from upstream.operators.relations.plan.nodes import Join, Where, walk

from .refusals import refusals

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
    assert str(only(made.right, Where).condition) == "(bid > cast(3 AS DOUBLE))"
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


test_what_is_refused = refusals(
    (f"a.n = 1 OR a.sym IN (SELECT sym FROM {INNER})", "not supported in WHERE", ""),
    (f"a.sym IN (SELECT sym, bid FROM {INNER})", "IN compares 1 with 2 columns", ""),
    (f"(a.sym, a.n) NOT IN (SELECT sym, bid FROM {INNER})", "NOT EXISTS", ""),
    (f"a.sym IN (SELECT a.sym FROM {INNER})", "not supported in this SELECT", "a.sym"),
    (f"a.t IN (SELECT bid FROM {INNER})", "", ""),
    (f"EXISTS (SELECT nothing FROM {INNER})", "there is no column 'nothing'", "nothing"),
    (f"EXISTS (SELECT COUNT(*) FROM {INNER} WHERE b.sym = a.sym)", "there is no source 'a'", "a.sym"),
    ("EXISTS (SELECT 1 FROM (SELECT * FROM quote [NOW] WHERE sym = a.sym) x)", "there is no source 'a'", "a.sym"),
    of=OUTER,
)
