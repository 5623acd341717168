"""What each operator keeps, and which plans are refused."""

from __future__ import annotations

import pytest
from kit.continuous import bound, refused

from upstream.queries.relations.bounds import UnboundedError, length_text, state_of
from upstream.queries.relations.nodes import Aggregate, Changes, Distinct, Join, SetOperation, Top, Windowed

S = 1_000_000
WITHIN = "a.t BETWEEN b.t AND b.t + INTERVAL '2' SECONDS"


def keeps(sql: str, kind: type) -> list[str]:
    return [each.keeps for each in state_of(bound(sql).plan) if isinstance(each.node, kind)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("trade [RANGE 90 MINUTES]", "the rows of 90 minutes"),
        ("trade [RANGE 1 DAY SLIDE 1 HOUR]", "the rows of 1 day, until the next multiple of 1 hour"),
        ("trade [NOW]", "the rows of one instant"),
        ("trade [PARTITION BY sym, n ROWS 3]", "3 rows per (sym, n)"),
        ("trade [ROWS 1]", "1 row"),
        ("LATEST(buses)", "one row per (vehicle_id)"),
        ("Domains", "all rows of Domains"),
        ("trade", ""),
        ("TUMBLE(trade, t, INTERVAL '1' HOUR)", "the rows of 1 hour and of 1 hour more"),
    ],
)
def test_windows(window: str, expected: str) -> None:
    assert keeps(f"SELECT COUNT(*) FROM {window}", Windowed) == [expected]


@pytest.mark.parametrize(
    ("sql", "kind", "expected"),
    [
        ("SELECT sym, COUNT(*), SUM(px) FROM trade GROUP BY sym", Aggregate, "2 partial aggregates per (sym)"),
        ("SELECT COUNT(*) FROM trade", Aggregate, "1 partial aggregate per the whole"),
        ("SELECT MAX(px) FROM trade", Aggregate, "1 partial aggregate per the whole"),
        (
            "SELECT MAX(px) FROM trade [NOW]",
            Aggregate,
            "1 partial aggregate per the whole; a weight per value of px in each group",
        ),
        ("SELECT DISTINCT sym FROM trade", Distinct, "a weight per distinct (sym)"),
        (
            "SELECT sym FROM trade INTERSECT SELECT sym FROM quote",
            SetOperation,
            "a weight of each side per distinct (sym)",
        ),
        ("SELECT sym FROM trade UNION ALL SELECT sym FROM quote", SetOperation, ""),
        ("SELECT sym, n FROM trade ORDER BY n LIMIT 2", Top, "2 rows"),
        ("SELECT sym, n FROM trade [NOW] ORDER BY n LIMIT 2", Top, "the rows below it, in order"),
        ("RSTREAM(SELECT sym FROM trade [NOW])", Changes, "all rows of the relation"),
        ("SELECT sym FROM trade", Changes, ""),
    ],
)
def test_operators(sql: str, kind: type, expected: str) -> None:
    assert keeps(sql, kind) == [expected]


@pytest.mark.parametrize(
    ("sql", "sides"),
    [
        ("SELECT S.URL FROM Requests S, Domains R WHERE S.domain = R.domain", ("none", "all")),
        ("SELECT a.sym FROM trade [NOW] a, quote [NOW] b WHERE a.sym = b.sym", ("all", "all")),
        ("SELECT a.sym FROM trade a JOIN quote b ON a.t BETWEEN b.t AND b.t + INTERVAL '2' SECONDS", (0, 2_000_000)),
        ("SELECT sym FROM trade [NOW] WHERE sym IN (SELECT sym FROM quote)", ("all", "keys")),
        # A row that leaves takes its pairs with it: the other side is needed until then.
        (
            "SELECT n FROM trade a JOIN quote [RANGE 9 SECONDS] b ON a.t BETWEEN b.t AND b.t + INTERVAL '2' SECONDS",
            (9 * S, 2 * S),
        ),
        (
            "SELECT n FROM trade [ROWS 3] a JOIN quote [NOW] b ON a.t BETWEEN b.t AND b.t + INTERVAL '2' SECONDS",
            ("all", "all"),
        ),
        # A row comes into a window that slides at the next multiple.
        (
            f"SELECT n FROM trade a, quote [RANGE 9 SECONDS SLIDE 3 SECONDS] b WHERE {WITHIN}",
            (12 * S, 2 * S),
        ),
        ("SELECT domain FROM Domains WHERE domain NOT IN (SELECT domain FROM Requests [NOW])", ("all", "none")),
    ],
)
def test_joins_keep_what_may_still_meet(sql: str, sides: tuple[object, object]) -> None:
    found = [each for each in state_of(bound(sql).plan) if isinstance(each.node, Join)]
    assert [each.sides for each in found] == [sides]


@pytest.mark.parametrize(
    ("sql", "part", "at"),
    [
        ("SELECT t, COUNT(*) FROM trade GROUP BY t", "GROUP BY would keep", "trade"),
        ("SELECT date_trunc('DAY', t) AS d, COUNT(*) FROM trade GROUP BY 1", "GROUP BY would keep", "trade"),
        ("SELECT COUNT(DISTINCT t) FROM trade", "COUNT would keep", "trade"),
        ("SELECT MEDIAN(unix_micros(t)) FROM trade", "MEDIAN would keep", "trade"),
        ("SELECT * FROM trade UNION SELECT * FROM trade", "UNION would keep", "trade"),
        ("SELECT * FROM trade [PARTITION BY t ROWS 1]", "a partition for each time", "[PARTITION BY t ROWS 1]"),
        ("SELECT a.sym FROM trade a JOIN quote [NOW] b USING (sym)", "the join would keep", "trade a"),
        (
            "SELECT n FROM trade a JOIN LATEST(buses) b ON t BETWEEN timestamp AND timestamp",
            "the join would keep",
            "trade a",
        ),
        ("SELECT a.sym FROM trade [NOW] a JOIN quote b ON a.t >= b.t", "the join would keep", "quote b"),
        ("SELECT sym FROM trade a WHERE EXISTS (SELECT 1 FROM quote b WHERE a.px < b.bid)", "the join would keep", ""),
        ("SELECT sym FROM trade WHERE sym IN (SELECT sym FROM quote [NOW])", "the join would keep", "trade"),
        ("SELECT t FROM trade [NOW] WHERE n IN (SELECT unix_micros(t) FROM quote)", "IN or EXISTS would keep", "quote"),
        ("RSTREAM(SELECT sym FROM trade)", "RSTREAM gives all rows", "trade"),
        ("SELECT n FROM trade EMIT PERIODIC INTERVAL '1' SECOND", "RSTREAM gives all rows", "trade"),
        (
            "SELECT n FROM trade a LEFT JOIN quote b ON a.t BETWEEN b.t AND b.t + INTERVAL '2' DAYS ORDER BY 1 LIMIT 1",
            "the first rows of an order need all rows",
            "",
        ),
    ],
)
def test_plans_without_a_bound_are_refused_at_the_source(sql: str, part: str, at: str) -> None:
    refused(sql, part, "What to do", at=at)


def test_groups_of_a_window_of_time_have_a_bound() -> None:
    bound("SELECT t, COUNT(*) FROM trade [RANGE 1 HOUR] GROUP BY t")
    bound("SELECT window_end, COUNT(*) FROM TUMBLE(trade, t, INTERVAL '1' HOUR) GROUP BY window_end")


def test_a_join_of_three_streams_waits_for_the_pairs_of_two() -> None:
    plan = bound(
        "SELECT a.n FROM trade a JOIN quote b ON a.t BETWEEN b.t - INTERVAL '5' SECONDS AND b.t "
        "JOIN quote c ON c.t BETWEEN a.t AND a.t + INTERVAL '1' SECOND"
    ).plan
    # A pair of a and b may come 5 s after a, and so 5 s after c.
    assert [each.sides for each in state_of(plan) if isinstance(each.node, Join)] == [(5 * S, 0), (S, 5 * S)]


def test_the_error_has_the_operator_and_the_source() -> None:
    from kit.continuous import CATALOG

    from upstream.queries.language.binder import _context, _outermost
    from upstream.queries.language.dialect import parse
    from upstream.queries.language.places import Text

    sql = "SELECT DISTINCT t FROM trade"
    plan = _outermost(parse(sql), _context(Text(sql), CATALOG))
    with pytest.raises(UnboundedError) as caught:
        state_of(plan)
    assert isinstance(caught.value.node, Distinct)
    assert isinstance(caught.value.source, Windowed)


def test_lengths_are_written_in_the_largest_unit() -> None:
    assert [length_text(each) for each in (1, 1000, 1_500_000, 60_000_000, 86_400_000_000, 0)] == [
        "1 microseconds",
        "1 millisecond",
        "1500 milliseconds",
        "1 minute",
        "1 day",
        "0 microseconds",
    ]
