from kit.continuous import only, relation

from upstream.operators.relations.plan.nodes import Top, Where

from .refusals import refusals

NOW = "FROM trade [NOW]"


def test_qualify_with_a_condition_beside_the_rank():
    plan = relation(f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px, n DESC) < 3 AND n > 1")
    top = only(plan, Top)
    assert (top.n, [str(each) for each in top.by]) == (2, ["sym"])
    assert [(each.descending, each.nulls_first) for each in top.order] == [(False, True), (True, False)]
    assert isinstance(only(plan, Where).source, Top)


test_what_is_refused = refusals(
    (f"SELECT sym {NOW} QUALIFY n > 1", "no function with OVER", "QUALIFY n > 1"),
    (f"SELECT sym {NOW} QUALIFY RANK() OVER (ORDER BY n) = 1", "ROW_NUMBER()", "RANK() OVER (ORDER BY n) = 1"),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (PARTITION BY sym) = 1", "needs ORDER BY", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n) = 2", "= 1, or <= n", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n) <= 0", "= 1, or <= n", ""),
    (f"SELECT sym {NOW} QUALIFY ROW_NUMBER() OVER (ORDER BY n ROWS 3 PRECEDING) = 1", "takes no frame", ""),
    (
        f"SELECT sym, COUNT(*) {NOW} GROUP BY sym QUALIFY ROW_NUMBER() OVER (ORDER BY sym) = 1",
        "aggregate in a subquery",
        "",
    ),
)
