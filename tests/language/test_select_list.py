import pyarrow as pa
from kit.continuous import refused, relation
from kit.refusals import refusals

from upstream.expressions.nodes import Field
from upstream.operators.relations.plan.nodes import Distinct, Order, Project, Top

NOW = "FROM trade [NOW]"


def test_names_of_columns_and_stars():
    plan = relation(
        f"SELECT COUNT(*), COUNT(px), MAX(px), 1 + 1, CAST(sym AS STRING), COUNT(*) AS count_2 {NOW} GROUP BY sym"
    )
    assert plan.schema.names == ["count", "count_3", "max", "column", "sym", "count_2"]
    plan = relation("SELECT b.*, a.n FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym")
    assert plan.schema.names == ["sym", "bid", "t", "n"]


test_what_is_refused = refusals(
    (f"SELECT sym, SYM {NOW}", "two columns are named 'SYM'", "SYM"),
    (f"SELECT x.* {NOW} a", "there is no source 'x'", "x.*"),
    (f"SELECT a.* AS b {NOW} a", "a comma, or FROM", "AS"),
    (f"SELECT sym {NOW} ORDER BY sym", "a relation has no order", "ORDER BY sym"),
    (f"SELECT sym {NOW} LIMIT 0", "LIMIT 0 is not a whole number", "0"),
    (f"SELECT sym {NOW} ORDER BY 3 LIMIT 1", "ORDER BY 3 is not a column", "3"),
)


def test_order_by_what_is_selected_and_what_is_not():
    plan = relation(f"SELECT DISTINCT sym, n AS m {NOW} ORDER BY m DESC, sym LIMIT 3")
    assert isinstance(plan, Top)
    assert isinstance(plan.source, Distinct)
    assert plan.order == (
        Order(Field("m", pa.int64()), descending=True, nulls_first=False),
        Order(Field("sym", pa.string())),
    )
    refused(f"SELECT DISTINCT sym {NOW} ORDER BY n LIMIT 3", "orders only by what it selects", at="n")
    plan = relation(f"SELECT sym {NOW} ORDER BY px DESC NULLS FIRST LIMIT 3")
    assert isinstance(plan, Project)
    assert plan.source.order == (Order(Field("px", pa.float64()), descending=True, nulls_first=True),)
    assert relation(f"SELECT sym, px {NOW} ORDER BY 2 LIMIT 3").order[0].expression == Field("px", pa.float64())
    assert relation(f"SELECT sym {NOW} LIMIT 3").order == ()
