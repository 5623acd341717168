from upstream.sql.dialect import parse
from upstream.sql.scalars import has_aggregate, has_query, has_window, unwrapped


def test_what_an_expression_has_in_it():
    def item(sql: str) -> object:
        return parse(f"SELECT {sql} FROM s").expressions[0]

    assert has_aggregate(item("1 + SUM(x)"))
    assert not has_aggregate(item("SUM(x) OVER (ORDER BY t)"))
    assert has_aggregate(item("SUM(MAX(x)) OVER (ORDER BY t)"))
    assert not has_aggregate(item("(SELECT MAX(x) FROM t)"))
    assert not has_aggregate(item("COUNT(*) FILTER (WHERE x > 1) OVER (ORDER BY t)"))
    assert has_window(item("1 + SUM(x) OVER (ORDER BY t)"))
    assert has_query(item("1 + (SELECT 1 FROM t)"))
    assert not has_query(item("1 + x"))
    select = parse("SELECT ((1 + x)) FROM s")
    assert unwrapped(select.expressions[0]).sql() == "1 + x"
