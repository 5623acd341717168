"""Every expression of a plan has the zone, wherever in a node it stands."""

import pytest
from kit.continuous import CATALOG

from upstream.operators.relations.plan.bounds import partners_of
from upstream.operators.relations.plan.nodes import Join, walk
from upstream.operators.relations.plan.normalize import zoned
from upstream.sql import bind

DAY_US = 86_400_000_000
BERLIN = CATALOG.in_zone("Europe/Berlin")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT HOUR(t) AS h FROM trade [NOW]",
        "SELECT sym FROM trade [NOW] WHERE HOUR(t) = 3",
        "SELECT HOUR(t) AS h, COUNT(*) AS n FROM trade [RANGE 1 HOUR] GROUP BY HOUR(t)",
        "SELECT sym, MAX(HOUR(t)) AS h FROM trade [RANGE 1 HOUR] GROUP BY sym",
        "SELECT sym, COUNT(*) FILTER (WHERE HOUR(t) = 3) AS h FROM trade [RANGE 1 HOUR] GROUP BY sym",
        "SELECT a.sym FROM trade [NOW] a JOIN quote [NOW] b ON HOUR(a.t) = HOUR(b.t)",
        "SELECT a.sym FROM trade [NOW] a LEFT JOIN quote [NOW] b ON a.sym = b.sym AND HOUR(a.t) = 3",
        "SELECT sym, t FROM trade [RANGE 1 HOUR] ORDER BY HOUR(t) LIMIT 3",
        "SELECT COUNT(*) AS n FROM trade [PARTITION BY sym ROWS 2 WHERE HOUR(t) = 3]",
        "SELECT sym FROM trade [NOW] WHERE t IN (SELECT t FROM quote [NOW] WHERE HOUR(t) = 3)",
        "SELECT sym, CAST(t AS STRING) AS c FROM trade [NOW] UNION SELECT sym, CAST(t AS STRING) FROM quote [NOW]",
        "WITH w AS (SELECT HOUR(t) AS h FROM trade [RANGE 1 HOUR]) SELECT h FROM w EMIT CHANGES",
    ],
)
def test_wherever_it_stands(text):
    plan, utc = bind(text, BERLIN).plan, bind(text, CATALOG).plan
    assert "local_time(" in str(plan).replace("function='local_time'", "local_time(")
    assert "local_time" not in str(utc)
    assert plan.schema == utc.schema
    assert bind(text, CATALOG.in_zone("UTC")).plan == utc


def test_a_view_has_the_zone_of_the_query_that_names_it():
    catalog = BERLIN.with_view("hours", "SELECT HOUR(timestamp) AS h, vehicle_id FROM LATEST(buses)")
    plan = bind("SELECT h, COUNT(*) AS n FROM hours GROUP BY h", catalog).plan
    assert "local_time" in str(plan)


def test_what_has_no_time_is_the_same_object():
    plan = bind("SELECT sym, MAX(px) AS hi FROM trade [RANGE 1 HOUR] GROUP BY sym", CATALOG).plan
    assert zoned("Europe/Berlin")(plan) is plan


def test_a_day_of_a_zone_bounds_a_join_with_room_for_what_clocks_are_set():
    condition = "a.t BETWEEN b.t AND b.t + INTERVAL '2' DAY"
    text = f"SELECT a.px FROM trade a JOIN quote b ON a.sym = b.sym AND {condition}"
    plan = bind(text, BERLIN).plan
    assert "add_interval_in_zone" in str(plan)
    (join,) = (each for each in walk(plan) if isinstance(each, Join))
    right = next(name for name in join.right.schema.names if name.rpartition(".")[2] == "t")
    found = partners_of(join, frozenset({"t"}), frozenset({right}))
    assert found == (("t", 0), (right, 3 * DAY_US)), "a day of a zone has up to 48 hours"
