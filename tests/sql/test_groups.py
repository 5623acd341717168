from kit.continuous import only, relation

from upstream.operators.relations.plan.nodes import Aggregate, Project, Top, Where

from .refusals import refusals

NOW = "FROM trade [NOW]"


def test_groups_by_name_alias_number_and_expression():
    expected = relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY upper(sym)")
    assert isinstance(expected, Aggregate)
    assert [name for name, _ in expected.by] == ["u"]
    assert relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY u") == expected
    assert relation(f"SELECT upper(sym) AS u, COUNT(*) AS c {NOW} GROUP BY 1") == expected
    # A column of the source comes before an alias of that name.
    shadowed = relation(f"SELECT upper(sym) AS n, COUNT(*) AS c {NOW} GROUP BY n, sym")
    assert [str(each) for _, each in only(shadowed, Aggregate).by] == ["n", "sym"]


def test_expressions_having_and_order_have_aggregates_of_their_own():
    plan = relation(f"SELECT upper(sym) || 'x' AS u, SUM(px) / COUNT(*) AS r, SUM(px) AS s {NOW} GROUP BY upper(sym)")
    assert isinstance(plan, Project)
    aggregate = plan.source
    assert [each.function for each in aggregate.aggregates] == ["sum", "count"], "the same sum is computed once"
    assert plan.schema.names == ["u", "r", "s"]
    plan = relation(
        f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY sym HAVING MAX(px) > 3 AND c > 1 ORDER BY MIN(n) LIMIT 2"
    )
    aggregate = only(plan, Aggregate)
    assert [each.function for each in aggregate.aggregates] == ["count", "max", "min"]
    assert isinstance(only(plan, Where).source, Aggregate)
    assert only(plan, Top).order[0].expression.name == "min"
    assert plan.schema.names == ["sym", "c"]
    assert isinstance(relation(f"SELECT 1 AS one {NOW} HAVING COUNT(*) > 0").source, Where)


test_what_is_refused = refusals(
    (f"SELECT sym, px {NOW} GROUP BY sym", "'px' is neither in GROUP BY nor in an aggregate", "px"),
    (f"SELECT sym, COUNT(*) {NOW}", "'sym' is neither", "sym"),
    (f"SELECT * {NOW} GROUP BY sym", "* cannot stand beside", "*"),
    (f"SELECT sym {NOW} GROUP BY 2", "GROUP BY 2 is no column of SELECT", "2"),
    (f"SELECT COUNT(*) {NOW} GROUP BY 1", "an aggregate cannot be in GROUP BY", "1"),
    (f"SELECT COUNT(*) {NOW} GROUP BY MAX(px)", "an aggregate cannot be in GROUP BY", "MAX(px)"),
    (f"SELECT sym, COUNT(*) AS c {NOW} GROUP BY sym HAVING px > 1", "'px' is neither", "px"),
)
