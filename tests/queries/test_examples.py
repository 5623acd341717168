"""From the text to rows: the examples of the contract and of the paper, parsed, bound, compiled and evaluated."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from kit.continuous import MOMENT
from kit.evaluated import changes
from kit.evaluated import relation_at as at

from upstream.queries.deltas.zsets import TIME, WEIGHT
from upstream.queries.relations.nodes import Stream

REQUESTS = Stream(
    "Requests",
    pa.schema({"t": MOMENT, "client": pa.string(), "domain": pa.string(), "url": pa.string()}),
    event_time="t",
)
S = Stream("S", pa.schema({"t": MOMENT, "k": pa.string()}), event_time="t")
BUSES = Stream(
    "buses",
    pa.schema({"id": pa.string(), "route_id": pa.string(), "speed": pa.float64(), "t": MOMENT}),
    key=("id",),
    event_time="t",
    updates=True,
)
DOMAINS = Stream("Domains", pa.schema({"domain": pa.string(), "type": pa.string()}), static=True)

# The contract's example 1: time, client, domain, url.
ASKED = [
    (1, "A", "st", "cs/1"),
    (2, "A", "st", "ee/1"),
    (3, "B", "com", "x"),
    (4, "A", "st", "cs/2"),
    (5, "B", "st", "cs/3"),
    (6, "A", "com", "y"),
    (7, "A", "com", "z"),
]


@pytest.mark.parametrize("steps", [1, 3, 7])
def test_example_1_predicates_inside_and_outside_of_the_brackets(steps: int) -> None:
    inside = "SELECT COUNT(*) AS n FROM Requests [PARTITION BY client ROWS 2 WHERE domain = 'st'] WHERE url LIKE 'cs%'"
    found = changes(inside, {REQUESTS: ASKED}, steps=steps)
    assert [at(found, tau) for tau in range(8)] == [Counter({(n,): 1}) for n in (0, 1, 1, 1, 1, 2, 2, 2)]
    outside = "SELECT COUNT(*) AS n FROM Requests [PARTITION BY client ROWS 2] WHERE domain = 'st' AND url LIKE 'cs%'"
    assert at(changes(outside, {REQUESTS: ASKED}, steps=steps), 7) == Counter({(1,): 1})


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_sums_of_decimals_are_exact_whatever_comes_and_leaves(steps: int) -> None:
    total = "SUM(CAST(LENGTH(k) AS DECIMAL(38, 10)))"
    query = f"SELECT {total} AS total, AVG(CAST(LENGTH(k) AS DECIMAL(5, 2))) AS mean FROM S [RANGE 3 MICROSECONDS]"
    found = changes(query, {S: [(1, "a"), (2, "bb"), (2, "bb"), (6, "a")]}, steps=steps)
    sums = [{tuple(map(float, row)) for row in at(found, tau) if row[0] is not None} for tau in (1, 2, 4, 5, 6)]
    assert sums == [{(1, 1)}, {(5, 1.666667)}, {(4, 2)}, set(), {(1, 1)}]


@pytest.mark.parametrize("steps", [1, 2, 4])
def test_example_2_changes_of_a_grouped_count(steps: int) -> None:
    query = "SELECT k, COUNT(*) AS n FROM S [RANGE 3 MICROSECONDS] GROUP BY k"
    rows = {S: [(1, "a"), (2, "b"), (2, "b"), (6, "a")]}
    assert sorted(changes(f"ISTREAM({query})", rows, steps=steps), key=lambda row: row[-2]) == [
        ("a", 1, 1, 1),
        ("b", 2, 2, 1),
        ("a", 1, 6, 1),
    ]
    assert sorted(changes(f"DSTREAM({query})", rows, steps=steps), key=lambda row: row[-2]) == [
        ("a", 1, 4, 1),
        ("b", 2, 5, 1),
        ("a", 1, 9, 1),
    ]


@pytest.mark.parametrize(
    "source",
    [
        "LATEST(buses)",
        "buses [PARTITION BY id ROWS 1]",
        "(SELECT * FROM buses QUALIFY ROW_NUMBER() OVER (PARTITION BY id ORDER BY t DESC) = 1)",
    ],
)
def test_example_3_a_bus_that_changes_its_route_and_one_that_is_deleted(source: str) -> None:
    rows = [("x", "r1", 10.0, 1), ("y", "r1", 20.0, 2), ("x", "r2", 30.0, 5), ("y", None, None, 8, "deleted")]
    found = changes(f"SELECT route_id, COUNT(*) AS n, AVG(speed) AS v FROM {source} GROUP BY route_id", {BUSES: rows})
    assert at(found, 4) == Counter({("r1", 2, 15.0): 1})
    assert at(found, 5) == Counter({("r1", 1, 20.0): 1, ("r2", 1, 30.0): 1})
    assert at(found, 8) == Counter({("r2", 1, 30.0): 1})
    # It leaves one group and enters another at one time.
    assert {(row[0], row[-1]) for row in found if row[-2] == 5} == {("r1", -1), ("r1", 1), ("r2", 1)}


def test_paper_select_star_is_the_stream() -> None:
    again = [*ASKED, ASKED[-1]]
    found = changes("SELECT * FROM Requests", {REQUESTS: again})
    assert sorted((row[1:4], row[-2]) for row in found for _ in range(row[-1])) == sorted(
        (row[1:4], row[0]) for row in again
    )


def test_paper_urls_of_commerce_within_a_range_of_clients() -> None:
    query = (
        "SELECT T.url FROM (SELECT client, url FROM Requests S, Domains R "
        "WHERE S.domain = R.domain AND R.type = 'commerce') T SAMPLE (100) WHERE T.client BETWEEN 'A' AND 'A'"
    )
    found = changes(query, {REQUESTS: ASKED, DOMAINS: [("com", "commerce"), ("st", "study")]})
    assert sorted((row[0], row[-2], row[-1]) for row in found) == [("y", 6, 1), ("z", 7, 1)]


@pytest.mark.parametrize("steps", [1, 4])
def test_hop_holds_its_start_and_range_its_end(steps: int) -> None:
    rows = {S: [(0, "a"), (9, "a"), (10, "b"), (19, "b")]}
    tumble = "SELECT k, COUNT(*) AS n FROM TUMBLE(S, t, INTERVAL '10' MICROSECONDS) GROUP BY k EMIT ON WINDOW CLOSE"
    found = changes(tumble, rows, end=25, steps=steps)
    assert [row for row in found if row[-2] in {10, 20}] == [("a", 2, 10, 1), ("b", 2, 20, 1)]
    window = (
        "SELECT k, COUNT(*) AS n FROM S [RANGE 10 MICROSECONDS SLIDE 10 MICROSECONDS] GROUP BY k EMIT ON WINDOW CLOSE"
    )
    found = changes(window, rows, end=25, steps=steps)
    assert sorted(row for row in found if row[-2] == 10) == [("a", 1, 10, 1), ("b", 1, 10, 1)]


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_over_gives_each_row_once_with_the_aggregate_of_its_window(steps: int) -> None:
    query = (
        "SELECT k, COUNT(*) OVER (PARTITION BY k ORDER BY t RANGE BETWEEN INTERVAL '2' MICROSECONDS PRECEDING "
        "AND CURRENT ROW) AS n FROM S"
    )
    rows = [(1, "a"), (2, "a"), (3, "a"), (4, "a"), (4, None), (5, None), (5, None)]
    found = changes(query, {S: rows}, steps=steps)
    counted = Counter({(*row[:2], row[-2]): row[-1] for row in found})
    assert counted == Counter(
        {("a", 1, 1): 1, ("a", 2, 2): 1, ("a", 3, 3): 1, ("a", 3, 4): 1, (None, 1, 4): 1, (None, 3, 5): 2}
    ), "rows that equal those of the microsecond before are given, too"


def test_null_aware_not_in_and_not_exists_differ() -> None:
    rows = {S: [(1, "a"), (2, None)], REQUESTS: [(1, "A", None, "x"), (1, "B", "b", "y")]}
    window = "[RANGE 9 MICROSECONDS]"
    not_in = f"SELECT k FROM S {window} WHERE k NOT IN (SELECT domain FROM Requests {window}) EMIT CHANGES"
    exists = (
        f"SELECT k FROM S {window} WHERE NOT EXISTS (SELECT 1 FROM Requests {window} WHERE domain = k) EMIT CHANGES"
    )
    assert at(changes(not_in, rows), 5) == Counter()
    assert at(changes(exists, rows), 5) == Counter({("a",): 1, (None,): 1})
    assert at(changes(not_in, rows), 10) == Counter({(None,): 1})
    assert WEIGHT != TIME
