import pytest
from kit.continuous import CATALOG, FORMS

from upstream.language import bind, plan_text


def explained(text: str) -> str:
    return plan_text(bind(text, CATALOG))


def test_a_plan_of_groups():
    assert explained(
        "SELECT route_id, COUNT(*) AS n, AVG(speed) AS v FROM LATEST(buses) WHERE speed > 1 GROUP BY route_id"
    ) == (
        "result: a relation, kept as a table (route_id string, n int64, v double)\n"
        "key: route_id\n"
        "reads: buses\n"
        "Aggregate by route_id: n = count(*), v = avg(speed) -- keeps 2 partial aggregates per (route_id)\n"
        "  Where (speed > 1.0)\n"
        "    Latest -- keeps one row per (vehicle_id)\n"
        "      Stream buses (updates by vehicle_id, time timestamp)"
    )


def test_plans_of_joins_show_what_each_side_keeps_and_what_stands_twice_once():
    text = explained(
        "SELECT px, bid FROM trade a JOIN quote b ON a.sym = b.sym AND a.t BETWEEN b.t AND b.t + INTERVAL '5' MINUTES",
    )
    assert "result: a stream of the rows that come (px double, bid double)" in text
    assert "reads: quote, trade" in text
    assert "left: rows for 0 seconds after their time; right: rows for 5 minutes after their time" in text
    sub = "SELECT sym, COUNT(*) AS c FROM trade [RANGE 1 HOUR] GROUP BY sym"
    text = explained(f"SELECT a.sym FROM ({sub}) a JOIN ({sub}) b ON a.c = b.c")
    assert text.count("Aggregate by sym") == 1
    assert "#1 Aggregate" in text
    assert "(see #1)" in text
    text = explained("SELECT a.speed FROM LATEST(buses) a JOIN LATEST(buses) b USING (route_id) WHERE a.speed > 1")
    assert (text.count("#1 Latest"), text.count("(see #1)")) == (1, 1)
    text = explained("SELECT sym, PERCENTILE(px, ARRAY(0.5, 0.9)) AS p FROM trade [RANGE 1 HOUR] GROUP BY sym")
    assert "keeps 2 partial aggregates per (sym); a weight per value of px in each group\n" in text
    text = explained(
        "SELECT b.sym, COUNT(*) AS n FROM quote [NOW] AS b JOIN trade [RANGE 1 HOUR] AS a ON a.sym = b.sym "
        "GROUP BY b.sym",
    )
    assert "Project a.sym = sym" in text
    assert "#" not in text
    assert text.endswith("Range 1 hour -- keeps the rows of 1 hour\n        Stream trade (time t)")


@pytest.mark.parametrize("sql", FORMS)
def test_each_form_is_explained(sql):
    lines = explained(sql).split("\n")
    assert lines[0].startswith("result: a ")
    kept = lines[0].startswith("result: a relation")
    assert lines[1].startswith("key: ") == kept
    assert lines[1 + kept].startswith("reads: ")
    assert any(each.strip().startswith(("Stream ", "Relation ")) for each in lines)


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT COUNT(*) FROM trade EMIT PERIODIC INTERVAL '5' SECONDS", "all rows of the relation, every 5 seconds"),
        ("RSTREAM(SELECT sym FROM trade [NOW])", "at each change"),
        ("DSTREAM(SELECT sym FROM trade [NOW])", "the rows that leave"),
        ("SELECT COUNT(*) AS n FROM LATEST(buses)", "\nkey: none, there is one row at most\n"),
        ("SELECT route_id FROM LATEST(buses)", "\nkey: none, equal rows can be there\n"),
        ("SELECT speed, vehicle_id AS v FROM LATEST(buses)", "\nkey: v\n"),
    ],
)
def test_what_the_result_is_and_what_identifies_its_rows(sql, part):
    assert part in explained(sql)
