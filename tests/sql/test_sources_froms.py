import pyarrow as pa
import pytest
from kit.continuous import only, relation

from upstream.expressions.nodes import Call, Field
from upstream.operators.relations.plan.nodes import Join, Project
from upstream.sql.sources import equalities

from .refusals import refusals

BOTH = "trade [NOW] AS a {} quote [NOW] AS b"


@pytest.mark.parametrize(
    ("join", "how"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT OUTER JOIN", "right"),
        ("FULL OUTER JOIN", "full"),
        ("LEFT SEMI JOIN", "semi"),
        ("SEMI JOIN", "semi"),
        ("LEFT ANTI JOIN", "anti"),
    ],
)
def test_kinds_of_joins(join, how):
    made = only(relation(f"SELECT a.sym FROM {BOTH.format(join)} ON b.sym = a.sym AND a.px < b.bid"), Join)
    assert made.how == how
    assert made.on == ((Field("sym", pa.string()), Field("b.sym", pa.string())),)
    assert str(made.condition) == "(px < bid)"


def test_columns_of_one_name_get_the_source_before_it_or_are_merged_by_using():
    plan = only(relation(f"SELECT * FROM {BOTH.format('CROSS JOIN')}".replace("*", "a.sym AS x, b.sym AS y")), Join)
    assert plan.schema.names == ["sym", "px", "n", "t", "b.sym", "bid", "b.t"]
    assert isinstance(plan.right, Project)
    three = relation("SELECT a.n, b.n AS n2, c.n AS n3 FROM trade [NOW] a, trade [NOW] b, trade [NOW] c")
    assert three.schema.names == ["n", "n2", "n3"]
    plan = relation(f"SELECT * FROM {BOTH.format('FULL JOIN')} USING (sym)".replace("*", "sym, px, bid"))
    assert str(dict(plan.columns)["sym"]) == "coalesce(sym, b.sym)"
    right = relation(f"SELECT sym FROM {BOTH.format('RIGHT JOIN')} USING (sym)")
    assert str(dict(right.columns)["sym"]) == "b.sym"
    left = relation(f"SELECT sym, a.sym AS x, b.sym AS y FROM {BOTH.format('LEFT JOIN')} USING (sym)")
    assert [str(each) for _, each in left.columns] == ["sym", "sym", "b.sym"]
    star = relation(f"SELECT * FROM {BOTH.format('JOIN')} USING (sym, t)")
    assert star.schema.names == ["sym", "t", "px", "n", "bid"]
    again = relation("SELECT sym FROM trade [NOW] a JOIN quote [NOW] b USING (sym) JOIN quote [NOW] c USING (sym)")
    assert again.schema.names == ["sym"]


test_joins_that_are_refused = refusals(
    (f"SELECT sym FROM {BOTH.format('JOIN')} ON a.sym = b.sym", "'sym' is ambiguous", "sym"),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} ON a.sym", "not a condition", "a.sym"),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} USING (symb)", "did you mean 'sym'?", "symb"),
    (f"SELECT b.bid FROM {BOTH.format('SEMI JOIN')} USING (sym)", "there is no source 'b'", "b.bid"),
    ("SELECT a.n FROM trade [NOW] a, quote [NOW] A", "two sources are named 'A'", "quote [NOW] A"),
    ("SELECT a.n FROM trade [NOW] a, quote [NOW] b RIGHT JOIN quote [NOW] c ON a.sym = c.sym", "write CROSS JOIN", ""),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} ON a.sym = b.sym AND COUNT(*) > 1", "cannot stand in ON", "COUNT(*)"),
    (f"SELECT a.n FROM {BOTH.format('JOIN')} ON a.sym = b.sym AND a.n IN (SELECT n FROM trade)", "in ON", ""),
    (f"SELECT * FROM {BOTH.format('JOIN')} ON a.sym = b.sym", "two columns are named 'sym'", "*"),
)


def test_equalities_are_pairs_of_both_sides():
    a, b = Field("a", pa.int64()), Field("b", pa.int64())
    same = Call("eq", (b, a), pa.bool_())
    less = Call("lt", (a, b), pa.bool_())
    alone = Call("eq", (a, a), pa.bool_())
    condition = Call("and", (Call("and", (same, less), pa.bool_()), alone), pa.bool_())
    assert equalities(condition, {"a"}, {"b"}) == ([(a, b)], [less, alone])
    assert equalities(None, {"a"}, {"b"}) == ([], [])
