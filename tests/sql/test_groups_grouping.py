import pytest
from kit.continuous import only, refused, relation

from upstream.operators.relations.plan.nodes import Aggregate, Project, SetOperation, walk

from .refusals import refusals

NOW = "FROM trade [NOW]"


def sets(group: str) -> list[list[str]]:
    """The columns of each grouping, without the number that tells them apart."""
    plan = relation(f"SELECT COUNT(*) AS c {NOW} GROUP BY {group}")
    return [
        [str(each) for name, each in node.by if not name.startswith("grouping_id")]
        for node in walk(plan)
        if isinstance(node, Aggregate)
    ]


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ("sym, n", [["sym", "n"]]),
        ("ROLLUP (sym, n)", [["sym", "n"], ["sym"], []]),
        ("sym, n WITH ROLLUP", [["sym", "n"], ["sym"], []]),
        ("ROLLUP ((sym, n), px)", [["sym", "n", "px"], ["sym", "n"], []]),
        ("CUBE (sym, n)", [["sym", "n"], ["sym"], ["n"], []]),
        ("sym, n WITH CUBE", [["sym", "n"], ["sym"], ["n"], []]),
        ("GROUPING SETS ((sym, n), n, ())", [["sym", "n"], ["n"], []]),
        ("GROUPING SETS (sym, sym)", [["sym"], ["sym"]]),
        ("GROUPING SETS (ROLLUP (sym), n)", [["sym"], [], ["n"]]),
        ("px, ROLLUP (sym)", [["px", "sym"], ["px"]]),
        ("ROLLUP (sym), ROLLUP (n)", [["sym", "n"], ["sym"], ["n"], []]),
        ("sym, ROLLUP (sym)", [["sym"], ["sym"]]),
    ],
)
def test_sets_are_sparks(group, expected):
    assert sets(group) == expected


def test_parts_are_a_union_of_rows_with_null_for_what_a_set_lacks():
    plan = relation(
        f"SELECT sym, n, COUNT(*) AS c, GROUPING(n) AS g, GROUPING_ID(sym, n) AS i {NOW} GROUP BY CUBE (sym, n)"
    )
    parts = [each for each in walk(plan) if isinstance(each, Project) and isinstance(each.source, Aggregate)]
    shown = [[str(dict(each.columns)[name]) for name in ("sym", "n")] for each in parts]
    assert shown == [["sym", "n"], ["sym", "NULL"], ["NULL", "n"], ["NULL", "NULL"]]
    numbers = [[str(value) for name, value in each.source.by if name.startswith("grouping_id")] for each in parts]
    assert numbers == [["0"], ["1"], ["2"], ["3"]]
    assert all(each.all for each in walk(plan) if isinstance(each, SetOperation))
    assert [str(each.type) for each in plan.schema] == ["string", "int64", "int64", "int8", "int64"]


def test_as_many_groupings_as_allowed():
    five = "sym, n, px, t, upper(sym)"
    assert len(sets(f"CUBE ({five}), ROLLUP (n + 1)")) == 64
    refused(f"SELECT 1 AS x {NOW} GROUP BY CUBE ({five}), ROLLUP (n, px)", "96 groupings", "at most 64")
    plan = relation(f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY GROUPING SETS ((sym))")
    assert len(only(plan, Aggregate).by) == 2


test_what_is_refused = refusals(
    (f"SELECT 1 AS x {NOW} GROUP BY CUBE (n, n+1, n+2, n+3, n+4, n+5, n+6)", "128 groupings", ""),
    (f"SELECT sym {NOW} GROUP BY sym GROUPING SETS ((sym))", "stands before its columns", "GROUPING SETS"),
    (f"SELECT px {NOW} GROUP BY ROLLUP (sym)", "'px' is neither in GROUP BY", "px"),
    (f"SELECT GROUPING(sym) AS g {NOW} GROUP BY sym", "needs several groupings", "GROUPING(sym)"),
    (f"SELECT GROUPING(px) AS g {NOW} GROUP BY ROLLUP (sym)", "of an expression of GROUP BY", "GROUPING(px)"),
    (f"SELECT GROUPING_ID(n) AS g {NOW} GROUP BY ROLLUP (sym, n)", "in their order", "GROUPING_ID(n)"),
    (f"SELECT 1 AS x {NOW} GROUP BY ROLLUP (CUBE (sym))", "put both into GROUPING SETS", "CUBE (sym)"),
    (f"SELECT 1 AS x {NOW} GROUP BY ROLLUP (MAX(n))", "an aggregate cannot be in GROUP BY", "MAX(n)"),
)
