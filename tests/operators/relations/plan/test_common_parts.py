"""Plans that can be shared: equal where they mean the same, with the columns of the query at the end."""

import pytest
from kit.continuous import FORMS, bound

from upstream.operators.relations.plan.common_parts import in_words, part_key, shareable
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.plan.nodes import Changes, Project, Where, walk
from upstream.operators.relations.plan.normalize import normalized


def below_names(sql):
    """Return the plan below the names that the query gives."""
    plan = shareable(bound(sql).plan)
    if isinstance(plan, Changes):
        plan = plan.source
    return plan.source if isinstance(plan, Project) else plan


# Pairs, one query below the other.
PAIRS = (
    "SELECT sym AS a FROM trade [NOW] WHERE n > 1 AND px < 2",
    "SELECT x.sym AS b FROM trade [NOW] AS x WHERE 2 > px AND 1 < x.n",
    "SELECT sym, n FROM (SELECT * FROM trade [NOW]) x",
    "SELECT sym, n FROM trade [NOW]",
    "SELECT a.px, b.bid FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym WHERE a.n > 1",
    "SELECT px AS y, bid AS x FROM quote [NOW] q JOIN (SELECT * FROM trade [NOW] WHERE n > 1L) t USING (sym)",
    "SELECT a.sym, b.bid FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym, b.bid FROM quote [NOW] b RIGHT JOIN trade [NOW] a ON a.sym = b.sym",
    "SELECT b.n FROM trade [NOW] a RIGHT JOIN trade [NOW] b ON a.n = b.px",
    "SELECT a.n FROM trade [NOW] a LEFT JOIN trade [NOW] b ON b.n = a.px",
    "SELECT sym, COUNT(*) AS c, MAX(px) AS m FROM trade [NOW] GROUP BY sym, n",
    "SELECT sym, COUNT(1) AS x, MAX(px) AS y FROM trade [NOW] GROUP BY n, sym",
    "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]",
    "SELECT sym AS x FROM quote [NOW] UNION SELECT sym FROM trade [NOW]",
    "SELECT * FROM LATEST(buses)",
    "SELECT * FROM buses [PARTITION BY vehicle_id ROWS 1]",
    "SELECT * FROM trade [PARTITION BY n, sym ROWS 2]",
    "SELECT * FROM trade [PARTITION BY sym, n ROWS 2]",
    "SELECT vehicle_id FROM fast",
    "SELECT vehicle_id FROM LATEST(buses) WHERE speed > 10",
    "SELECT sym FROM trade [NOW] a WHERE EXISTS (SELECT 1 FROM quote [NOW] b WHERE a.sym = b.sym)",
    "SELECT sym FROM trade [NOW] WHERE sym IN (SELECT sym FROM quote [NOW])",
    "SELECT * FROM trade [RANGE 60 MINUTES]",
    "SELECT * FROM trade [RANGE 1 HOUR]",
    "SELECT sym FROM trade [NOW] WHERE n > 1 AND n > 1",
    "SELECT sym FROM trade [NOW] WHERE n > 1L",
    "SELECT sym, n FROM trade [NOW] ORDER BY n LIMIT 3",
    "SELECT sym AS p, n AS q FROM trade [NOW] ORDER BY q LIMIT 3",
    "SELECT sym, COUNT(*) AS c, MAX(px) AS m FROM trade [NOW] GROUP BY sym",
    "SELECT MAX(z.px), z.sym AS k, COUNT(1) AS d FROM trade [NOW] z GROUP BY k",
    "SELECT DISTINCT sym AS a, sym AS b FROM trade",
    "SELECT DISTINCT sym FROM trade",
)


DIFFERENT = (
    "SELECT sym FROM trade [NOW]",
    "SELECT n FROM trade [NOW]",
    "SELECT sym, n FROM trade [NOW]",
    "SELECT n, sym FROM trade [NOW]",
    "SELECT sym FROM trade [RANGE 1 HOUR]",
    "SELECT sym FROM trade [RANGE 2 HOURS]",
    "SELECT sym FROM trade [RANGE 1 HOUR SLIDE 1 MINUTE]",
    "SELECT sym FROM HOP(trade, t, INTERVAL '1' MINUTE, INTERVAL '1' HOUR)",
    "SELECT sym FROM SESSION(trade PARTITION BY sym, t, INTERVAL '1' HOUR)",
    "SELECT sym FROM SESSION(trade PARTITION BY n, t, INTERVAL '1' HOUR)",
    "SELECT sym FROM SESSION(trade PARTITION BY n, t, INTERVAL '2' HOURS)",
    "SELECT sym FROM trade [ROWS 1]",
    "SELECT sym FROM trade [PARTITION BY sym ROWS 1]",
    "SELECT sym FROM trade [PARTITION BY sym ROWS 1 WHERE n > 1]",
    "SELECT sym FROM trade [PARTITION BY sym ROWS 1] WHERE n > 1",
    "SELECT sym FROM trade [NOW] SAMPLE (1)",
    "SELECT sym FROM trade [NOW] TABLESAMPLE (1 PERCENT) REPEATABLE (2)",
    "SELECT sym FROM quote [NOW]",
    "DSTREAM(SELECT sym FROM trade [NOW])",
    "SELECT sym FROM trade [NOW] EMIT CHANGES",
    "SELECT DISTINCT sym FROM trade [NOW]",
    "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]",
    "SELECT sym FROM trade [NOW] UNION ALL SELECT sym FROM quote [NOW]",
    "SELECT sym FROM trade [NOW] EXCEPT SELECT sym FROM quote [NOW]",
    "SELECT sym FROM quote [NOW] EXCEPT SELECT sym FROM trade [NOW]",
    "SELECT a.sym FROM trade [NOW] a JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym FROM trade [NOW] a LEFT SEMI JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT a.sym FROM trade [NOW] a LEFT ANTI JOIN quote [NOW] b ON a.sym = b.sym",
    "SELECT sym FROM trade [NOW] WHERE sym NOT IN (SELECT sym FROM quote [NOW])",
    "SELECT sym, COUNT(*) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym, COUNT(px) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym, COUNT(DISTINCT px) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym, COUNT(*) FILTER (WHERE n > 1) AS c FROM trade [NOW] GROUP BY sym",
    "SELECT sym FROM trade [NOW] ORDER BY n LIMIT 1",
    "SELECT sym FROM trade [NOW] ORDER BY n DESC LIMIT 1",
    "SELECT sym FROM trade [NOW] ORDER BY n LIMIT 2",
    "SELECT a.n, b.px FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n",
    "SELECT a.px, b.n FROM trade [NOW] a JOIN trade [NOW] b ON a.sym = b.sym AND a.n < b.n",
)


@pytest.mark.parametrize(("one", "other"), [*zip(PAIRS[::2], PAIRS[1::2], strict=True)])
def test_the_same_meaning_has_one_plan_whatever_the_names_and_the_order_of_columns(one, other):
    assert part_key(bound(one).plan) == part_key(bound(other).plan)
    assert below_names(one) == below_names(other)


def test_the_words_of_an_aggregate_are_its_own():
    made = shareable(bound("SELECT sym, SUM(px + 1) FILTER (WHERE n > 2) AS s FROM trade [NOW] GROUP BY sym").plan)
    (name,) = (name for each in walk(made) for name in each.schema.names if name.startswith("a:"))
    total = "sum((1.0 + px)) where (2 < n)"  # operands in the order in which they are compared with other queries
    assert (
        in_words(f"({name} + 1) has no value where {name} = 7", made) == f"({total} + 1) has no value where {total} = 7"
    )
    assert in_words("a:0123456789abcdef is of another plan", made) == "a:0123456789abcdef is of another plan"


def test_conditions_that_guard_others_keep_their_order():
    def condition(sql):
        plan = shareable(bound(sql).plan)
        return str(next(each for each in walk(plan) if isinstance(each, Where)).condition)

    guarded = "SELECT sym FROM trade [NOW] WHERE {} AND {}"
    first, second = "n <> 0", "10 / n > 2"
    assert condition(guarded.format(first, second)) != condition(guarded.format(second, first))
    assert condition(guarded.format("n <> 0", "px > 1")) == condition(guarded.format("px > 1", "n <> 0"))


def test_other_meanings_stay_apart():
    texts = dict.fromkeys([*FORMS, *DIFFERENT])
    plans = {normalized(bound(sql).plan): shareable(bound(sql).plan) for sql in texts}
    assert len({*plans.values()}) == len(plans) > 70
    assert len({identity(each) for each in plans.values()}) == len(plans)
