"""Plans that can be shared: equal where they mean the same, with the columns of the query at the end."""

from __future__ import annotations

import re
from itertools import combinations

import pytest
from kit.continuous import CATALOG, FORMS, bound

from upstream.queries.relations.bounds import state_of
from upstream.queries.relations.fingerprints import fingerprint
from upstream.queries.relations.nodes import Aggregate, Changes, Join, Project, Relation, Top, Where, walk
from upstream.queries.relations.sharing import in_words, shareable


def below_names(sql: str) -> Relation:
    """Return the plan below the names that the query gives."""
    plan = shareable(bound(sql, CATALOG).plan)
    if isinstance(plan, Changes):
        plan = plan.source
    return plan.source if isinstance(plan, Project) else plan


@pytest.mark.parametrize("sql", FORMS)
def test_columns_and_bounds_stay_and_a_second_time_changes_nothing(sql: str) -> None:
    plan = bound(sql, CATALOG).plan
    made = shareable(plan)
    assert made.schema == plan.schema
    assert state_of(made)
    assert below_of(shareable(made)) == below_of(made)
    assert all(len(set(each.schema.names)) == len(each.schema.names) for each in walk(made))


@pytest.mark.parametrize("sql", FORMS)
def test_each_column_can_be_put_in_words_of_the_query(sql: str) -> None:
    made = shareable(bound(sql, CATALOG).plan)
    for name in {name for each in walk(made) for name in each.schema.names}:
        found = in_words(f"{name} = 1", made)
        assert not re.search(r"[xga]:[0-9a-f]{16}", found), found
        assert found.endswith(" = 1")


def test_the_words_of_an_aggregate_are_its_own() -> None:
    made = shareable(bound("SELECT sym, SUM(px + 1) FILTER (WHERE n > 2) AS s FROM trade [NOW] GROUP BY sym").plan)
    (name,) = (name for each in walk(made) for name in each.schema.names if name.startswith("a:"))
    total = "sum((1.0 + px)) where (2 < n)"  # operands in the order in which they are compared with other queries
    assert (
        in_words(f"({name} + 1) has no value where {name} = 7", made) == f"({total} + 1) has no value where {total} = 7"
    )
    assert in_words("a:0123456789abcdef is of another plan", made) == "a:0123456789abcdef is of another plan"


def test_a_count_of_equal_counts_has_a_name_of_its_own() -> None:
    sql = "SELECT n, COUNT(*) AS c FROM (SELECT sym, COUNT(*) AS n FROM trade [NOW] GROUP BY sym) GROUP BY n"
    made = shareable(bound(sql, CATALOG).plan)
    assert made.schema.names == ["n", "c"]
    assert all(len(set(each.schema.names)) == len(each.schema.names) for each in walk(made))


def below_of(plan: Relation | Changes) -> Relation:
    inner = plan.source if isinstance(plan, Changes) else plan
    return inner.source if isinstance(inner, Project) else inner


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "SELECT sym AS a FROM trade [NOW] WHERE n > 1 AND px < 2",
            "SELECT x.sym AS b FROM trade [NOW] AS x WHERE 2 > px AND 1 < x.n",
        ),
        (
            "SELECT a.px, b.bid FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym WHERE a.n > 1",
            "SELECT bid AS x, px AS y FROM quote [NOW] q JOIN (SELECT * FROM trade [NOW] WHERE n > 1L) t USING (sym)",
        ),
        (
            "SELECT sym, COUNT(*) AS c, MAX(px) AS m FROM trade [NOW] GROUP BY sym",
            "SELECT MAX(z.px), z.sym AS k, COUNT(1) AS d FROM trade [NOW] z GROUP BY k",
        ),
        (
            "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]",
            "SELECT sym AS x FROM quote [NOW] UNION SELECT sym FROM trade [NOW]",
        ),
        ("SELECT DISTINCT sym AS a, sym AS b FROM trade", "SELECT DISTINCT sym FROM trade"),
        (
            "SELECT b.n FROM trade [NOW] a RIGHT JOIN trade [NOW] b ON a.n = b.px",
            "SELECT a.n FROM trade [NOW] a LEFT JOIN trade [NOW] b ON b.n = a.px",
        ),
        (
            "SELECT sym, n FROM trade [NOW] ORDER BY n LIMIT 3",
            "SELECT sym AS p, n AS q FROM trade [NOW] ORDER BY q LIMIT 3",
        ),
    ],
)
def test_the_same_meaning_has_equal_nodes(one: str, other: str) -> None:
    first, second = below_names(one), below_names(other)
    # What a query does not select may differ at the end; all that keeps state is equal.
    kinds = Aggregate | Join | Top
    if any(isinstance(each, kinds) for each in walk(first)):
        assert {each for each in walk(first) if isinstance(each, kinds)} == {
            each for each in walk(second) if isinstance(each, kinds)
        }
    else:
        assert first == second


def test_queries_share_the_join_that_both_have() -> None:
    join = "FROM trade [RANGE 1 HOUR] a JOIN quote [RANGE 1 HOUR] b ON a.sym = b.sym"
    one = shareable(bound(f"SELECT a.px, b.bid {join} WHERE a.px + b.bid > 1").plan)
    other = shareable(
        bound(
            "SELECT t.n, v.route_id FROM quote [RANGE 60 MINUTES] q JOIN trade [RANGE 1 HOUR] t ON t.sym = q.sym "
            "JOIN LATEST(buses) v ON v.vehicle_id = q.sym"
        ).plan
    )
    shared = set(walk(one)) & set(walk(other))
    assert any(isinstance(each, Join) for each in shared)


def test_other_meanings_stay_apart() -> None:
    plans = {sql: shareable(bound(sql, CATALOG).plan) for sql in FORMS}
    prints = {sql: fingerprint(bound(sql, CATALOG).plan) for sql in FORMS}
    for one, other in combinations(FORMS, 2):
        if prints[one] != prints[other]:
            assert plans[one] != plans[other], (one, other)


def test_conditions_that_guard_others_keep_their_order() -> None:
    def condition(sql: str) -> str:
        plan = shareable(bound(sql).plan)
        return str(next(each for each in walk(plan) if isinstance(each, Where)).condition)

    guarded = "SELECT sym FROM trade [NOW] WHERE {} AND {}"
    first, second = "n <> 0", "10 / n > 2"
    assert condition(guarded.format(first, second)) != condition(guarded.format(second, first))
    assert condition(guarded.format("n <> 0", "px > 1")) == condition(guarded.format("px > 1", "n <> 0"))
