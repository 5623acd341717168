from dataclasses import replace

import pyarrow as pa
import pytest
from kit.continuous import BUSES, CATALOG, TRADE, below, bound, only, refused, relation

from upstream.hosting.host_plan import rehearse
from upstream.language.explain import plan_text
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.properties import clock_of

MINUTE = 60_000_000


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        ("[RANGE 10 MINUTES]", nodes.TimeRange(10 * MINUTE)),
        ("[RANGE 10 MINUTES PRECEDING]", nodes.TimeRange(10 * MINUTE)),
        ("[RANGE INTERVAL '10' MINUTES]", nodes.TimeRange(10 * MINUTE)),
        ("[RANGE 10 MINUTES SLIDE 1 MINUTE]", nodes.TimeRange(10 * MINUTE, MINUTE)),
        ("[PARTITION BY sym RANGE 1 DAY]", nodes.TimeRange(1440 * MINUTE)),
        ("[NOW]", nodes.Now()),
        ("[RANGE UNBOUNDED]", nodes.UnboundedWindow()),
        ("[RANGE UNBOUNDED PRECEDING]", nodes.UnboundedWindow()),
        ("", nodes.UnboundedWindow()),
        ("[ROWS 5]", nodes.RowWindow(5)),
        ("[ROWS 5 PRECEDING]", nodes.RowWindow(5)),
        ("[PARTITION BY sym ROWS 1]", nodes.RowWindow(1, ("sym",))),
        ("[PARTITION BY SYM, n ROWS 2]", nodes.RowWindow(2, ("sym", "n"))),
    ],
)
def test_windows_in_brackets(window, expected):
    assert relation(f"SELECT * FROM trade {window}") == nodes.WindowOver(TRADE, expected)
    assert relation(f"SELECT * FROM trade {window} AS x") == nodes.WindowOver(TRADE, expected)
    assert relation(f"SELECT * FROM trade x {window}") == nodes.WindowOver(TRADE, expected)


def test_latest_rows_are_one_relation_however_they_are_spelled():
    rank = "QUALIFY ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {} DESC)"
    keyed = nodes.Stream("keyed", TRADE.schema, key=("sym",), event_time="t")
    catalog = CATALOG.with_stream(keyed)
    for stream, key, time in ((BUSES, "vehicle_id", "timestamp"), (keyed, "sym", "t")):
        expected = nodes.WindowOver(stream, nodes.Latest() if stream.updates else nodes.RowWindow(1, (key,)))
        for sql in (
            f"SELECT * FROM LATEST({stream.name})",
            f"SELECT * FROM {stream.name} [PARTITION BY {key} ROWS 1]",
            f"SELECT * FROM {stream.name} {rank.format(key, time)} = 1",
            f"SELECT * FROM {stream.name} {rank.format(key, time)} < 2",
        ):
            assert bound(sql, catalog).plan == expected, sql
    assert isinstance(bound("SELECT * FROM buses [PARTITION BY route_id ROWS 1]").plan, nodes.Changes)
    ranked = relation(
        "SELECT * FROM buses WHERE speed > 1D "
        "QUALIFY ROW_NUMBER() OVER (PARTITION BY vehicle_id ORDER BY timestamp DESC) = 1"
    )
    assert (ranked.window.n, ranked.window.partition) == (1, ("vehicle_id",))
    assert str(ranked.window.where) == "(speed > 1.0)"


def test_predicate_before_the_cut_stands_in_the_window():
    inside = relation("SELECT * FROM trade [PARTITION BY sym ROWS 2 WHERE n > 3]")
    outside = relation("SELECT * FROM trade [PARTITION BY sym ROWS 2] WHERE n > 3")
    assert inside.window.where is not None
    assert isinstance(outside, nodes.Where)
    assert outside.source == nodes.WindowOver(TRADE, nodes.RowWindow(2, ("sym",)))
    # A window of time takes each row by itself, so that both are the same there.
    assert relation("SELECT * FROM trade [RANGE 1 HOUR WHERE n > 3]") == relation(
        "SELECT * FROM trade [RANGE 1 HOUR] WHERE n > 3"
    )


def test_hop_and_tumble_hold_their_start():
    hop = "HOP(trade, t, INTERVAL '1' MINUTE, INTERVAL '10' MINUTES)"
    plan = relation(f"SELECT sym, COUNT(*) AS n FROM {hop} GROUP BY sym")
    assert only(plan, nodes.WindowOver).window == nodes.Hop(10 * MINUTE, MINUTE)
    named = relation(f"SELECT window_start, window_end, COUNT(*) AS n FROM {hop} GROUP BY window_start, window_end")
    assert only(named, nodes.WindowOver).window == nodes.Hop(10 * MINUTE, MINUTE, columns=True)
    tumble = relation("SELECT * FROM TUMBLE(TABLE trade, DESCRIPTOR(t), INTERVAL '1' HOUR)")
    assert tumble == nodes.WindowOver(TRADE, nodes.Hop(60 * MINUTE, 60 * MINUTE, columns=True))
    assert tumble.schema.names[-2:] == ["window_start", "window_end"]


def test_stream_operators_and_emit():
    inner = "SELECT sym, SUM(n) AS s FROM trade [RANGE 1 HOUR SLIDE 1 MINUTE] GROUP BY sym"
    aggregate = relation(inner)
    assert bound(inner).plan == aggregate
    assert bound(f"ISTREAM({inner})").plan == nodes.Changes(aggregate, "istream")
    assert bound(f"DSTREAM({inner})").plan == nodes.Changes(aggregate, "dstream")
    assert bound(f"RSTREAM({inner})").plan == nodes.Changes(aggregate, "rstream", MINUTE)
    assert bound(f"{inner} EMIT CHANGES").plan == aggregate
    assert bound(f"{inner} EMIT ON WINDOW CLOSE").plan == nodes.Changes(aggregate, "rstream", MINUTE)
    assert bound(f"{inner} EMIT PERIODIC INTERVAL '5' SECONDS").plan == nodes.Changes(aggregate, "rstream", 5_000_000)
    without = bound("RSTREAM(SELECT sym FROM trade [RANGE 1 HOUR])").plan
    assert (without.kind, without.every_us) == ("rstream", None)


def test_window_close_needs_one_way_to_close():
    sessions = "SELECT {} FROM SESSION(buses, timestamp, INTERVAL '5' MINUTES)"
    closing = bound(f"{sessions.format('vehicle_id, window_end')} EMIT ON WINDOW CLOSE").plan
    assert isinstance(closing, nodes.Changes)
    assert closing.kind == "istream"
    refused(f"{sessions.format('COUNT(*) AS n')} EMIT ON WINDOW CLOSE", "GROUP BY the key and window_end")
    refused(f"{sessions.format('DISTINCT vehicle_id')} EMIT ON WINDOW CLOSE", "SELECT window_end")
    refused(f"{sessions.format('bid')} CROSS JOIN quote [NOW] EMIT ON WINDOW CLOSE", "close at different times")
    refused("SELECT sym FROM trade [RANGE 1 HOUR] EMIT ON WINDOW CLOSE", "no window of this query closes", "SLIDE")
    refused(
        "SELECT a.sym FROM trade [RANGE 1 HOUR SLIDE 1 MINUTE] AS a JOIN quote [RANGE 1 HOUR SLIDE 2 MINUTES] AS b "
        "USING (sym) EMIT ON WINDOW CLOSE",
        "close at different times",
    )
    refused("ISTREAM(SELECT sym FROM trade [NOW]) EMIT CHANGES", "both turn the result into a stream", at="EMIT")


def test_samples_stand_below_the_window():
    for sql in (
        "SELECT * FROM trade [RANGE 1 HOUR] SAMPLE (1)",
        "SELECT * FROM trade SAMPLE (1) [RANGE 1 HOUR]",
        "SELECT * FROM trade [RANGE 1 HOUR] TABLESAMPLE (1 PERCENT) AS x",
        "SELECT * FROM trade x [RANGE 1 HOUR] SAMPLE (1)",
    ):
        assert relation(sql) == nodes.WindowOver(nodes.Sample(TRADE, 1.0), nodes.TimeRange(60 * MINUTE)), sql
    assert relation("SELECT * FROM trade SAMPLE (100)") == nodes.WindowOver(TRADE, nodes.UnboundedWindow())
    refused("SELECT * FROM trade SAMPLE (0)", "0 % is not a share", at="0")
    refused("SELECT * FROM trade TABLESAMPLE (5 ROWS)", "PERCENT", at="ROWS")


def test_subqueries_are_relations_unless_a_window_follows():
    inner = "SELECT sym, n FROM trade [RANGE 1 HOUR]"
    assert relation(f"SELECT * FROM ({inner}) x") == relation(inner)
    windowed = relation(f"SELECT * FROM ({inner}) x [RANGE 2 HOURS]")
    assert windowed == nodes.WindowOver(nodes.Changes(relation(inner), "istream"), nodes.TimeRange(120 * MINUTE))
    explicit = relation(f"SELECT * FROM DSTREAM({inner}) [NOW] AS x")
    assert explicit == nodes.WindowOver(nodes.Changes(relation(inner), "dstream"), nodes.Now())
    refused(
        "SELECT * FROM (SELECT sym, COUNT(*) AS n FROM trade GROUP BY sym) x [RANGE 2 HOURS]",
        "a window is of a stream",
        "ISTREAM(SELECT",
        at="[RANGE 2 HOURS]",
    )


def test_set_operations_give_both_sides_one_type():
    plan = relation("SELECT n FROM trade [NOW] UNION ALL SELECT bid FROM quote [NOW]")
    assert isinstance(plan, nodes.SetOperation)
    assert (plan.kind, plan.all) == ("union", True)
    assert plan.left.schema.types == plan.right.schema.types == [pa.float64()]
    assert plan.schema.names == ["n"]
    refused("SELECT n, px FROM trade [NOW] UNION SELECT bid FROM quote [NOW]", "2 and 1 columns")


def test_intersect_binds_tighter_and_order_and_limit_are_of_the_whole():
    plan = relation(
        "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW] INTERSECT SELECT sym FROM trade [ROWS 2] "
        "ORDER BY sym LIMIT 2"
    )
    assert isinstance(plan, nodes.Top)
    assert plan.source.kind == "union"
    assert plan.source.right.kind == "intersect"


def test_with_and_views_are_read_in_their_own_names():
    by_view = relation("SELECT route_id, COUNT(*) AS n FROM FAST GROUP BY route_id")
    by_hand = relation(
        "WITH f AS (SELECT vehicle_id, route_id, speed FROM LATEST(buses) WHERE speed > 10) "
        "SELECT route_id, COUNT(*) AS n FROM f GROUP BY route_id"
    )
    assert by_view == by_hand
    assert below(only(by_view, nodes.WindowOver)).window == nodes.Latest()


def test_views_that_read_themselves_and_errors_in_views():
    looped = CATALOG.with_view("a", "SELECT * FROM b").with_view("b", "SELECT * FROM A")
    refused("SELECT * FROM a", "reads itself: a -> b -> a", catalog=looped)
    broken = CATALOG.with_view("bad", "SELECT speeed FROM LATEST(buses)")
    refused(
        "SELECT * FROM bad",
        "in the view 'bad'",
        "there is no column 'speeed'",
        "did you mean 'speed'?",
        at="speeed",
        catalog=broken,
    )
    emits = CATALOG.with_view("bad", "SELECT * FROM trade [NOW] EMIT CHANGES")
    refused("SELECT * FROM bad", "EMIT is for the query that is registered", catalog=emits)


NEWEST = replace(BUSES, name="fleet", newest=True)


@pytest.mark.parametrize(
    ("sql", "at"),
    [
        ("SELECT * FROM LATEST(fleet)", None),
        ("SELECT route_id, COUNT(*) AS n FROM fleet [PARTITION BY vehicle_id ROWS 1] GROUP BY route_id", None),
        ("ISTREAM(SELECT a.speed FROM LATEST(fleet) a JOIN LATEST(buses) b USING (vehicle_id))", None),
        ("SELECT * FROM fleet QUALIFY ROW_NUMBER() OVER (PARTITION BY vehicle_id ORDER BY timestamp DESC) = 1", None),
        ("SELECT r.type FROM LATEST(fleet) f JOIN Domains r ON f.route_id = r.domain", None),
        ("SELECT COUNT(*) AS n FROM fleet", "fleet"),
        ("SELECT COUNT(*) AS n FROM fleet [RANGE 1 HOUR]", "[RANGE 1 HOUR]"),
        ("SELECT * FROM fleet [PARTITION BY vehicle_id ROWS 2]", "[PARTITION BY vehicle_id ROWS 2]"),
        ("SELECT * FROM LATEST(fleet SAMPLE (50))", "LATEST(fleet SAMPLE (50))"),
        ("SELECT * FROM LATEST(fleet) EMIT PERIODIC INTERVAL '5' SECONDS", "LATEST(fleet)"),
        ("SELECT f.speed FROM trade [NOW] t JOIN LATEST(fleet) f ON t.sym = f.vehicle_id", "LATEST(fleet)"),
    ],
)
def test_a_source_of_newest_rows_alone_answers_what_needs_no_others(sql, at):
    catalog = CATALOG.with_stream(NEWEST)
    if at is None:
        assert clock_of(bound(sql, catalog).plan) == "arrival"
    else:
        refused(sql, "lacks rows that newer ones", "LATEST(fleet)", at=at, catalog=catalog)


def test_functions_in_python_are_found_in_views_and_misfits_pointed_at():
    assert bound("SELECT * FROM fast").functions == ()
    catalog = CATALOG.with_view("scored", "SELECT sym, Doubled(px) AS d FROM trade [NOW]")
    query = bound("SELECT sym, d FROM scored WHERE d > 3", catalog)
    assert (query.functions, query.views) == (("doubled",), ("scored",))
    assert "python kit.python_functions:doubled(px)" in str(query.plan.source.columns[1][1])
    refused("SELECT doubled(px, n) AS d FROM trade", "doubled(DOUBLE)", at="doubled(px, n)")
    refused("SELECT doubled(sum(px)) AS d FROM trade WHERE doubled(sum(px)) > 1", "an aggregate", at="sum(px)")
    refused("SELECT doubbled(px) AS d FROM trade", "no function doubbled", at="doubbled(px)")


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT sym, COUNT(*) FROM trade GROUP BY sym",
        "SELECT hour(t) AS h, COUNT(*) FROM trade GROUP BY hour(t)",
        "SELECT DISTINCT sym FROM trade",
        "SELECT S.URL FROM Requests S, Domains R WHERE S.domain = R.domain",
        "SELECT px, bid FROM trade a JOIN quote b ON a.sym = b.sym AND a.t BETWEEN b.t AND b.t + INTERVAL '5' MINUTES",
        "SELECT sym, n FROM trade ORDER BY n DESC LIMIT 5",
    ],
)
def test_a_stream_without_a_window_is_taken_where_the_state_has_a_bound(sql):
    """Its plan reads all rows: no window stands in for the one that was not written."""
    windows = [each for each in nodes.walk(bound(sql).plan) if isinstance(each, nodes.WindowOver)]
    assert windows
    assert {type(each.window) for each in windows} == {nodes.UnboundedWindow}


@pytest.mark.parametrize(
    "text",
    [
        "SELECT a.sym, a.px, b.n, a.t FROM {0} AS a JOIN {0} AS b ON a.sym = b.sym WHERE a.px > 2 AND b.n > 3",
        "SELECT sym, px, n, t FROM {0} WHERE px > 1 UNION ALL SELECT sym, px + 1, n, t FROM {0} WHERE n < 3",
        "SELECT sym, px + px AS px, n, t FROM {0} AS a WHERE px > (SELECT AVG(px) FROM {0} AS b WHERE a.sym = b.sym)",
    ],
    ids=["join", "union", "subquery"],
)
def test_a_view_that_is_named_twice_in_each_of_many_is_bound_once(text):
    catalog = CATALOG.with_view("v0", "SELECT sym, px, n, t FROM trade [RANGE 1 HOUR]")
    sizes = []
    for number in range(1, 41):
        catalog = catalog.with_view(f"v{number}", text.format(f"v{number - 1}"))
        if number % 20 == 0:
            query = bound(f"SELECT * FROM v{number}", catalog)
            rehearse(query.plan, "q", "/nowhere/q", 1)
            sizes.append(len(plan_text(query)))
            assert len([*nodes.walk(query.plan)]) < 500 * number
    assert sizes[1] < 8 * sizes[0]
