from kit.continuous import relation

from .refusals import refusals

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
)
