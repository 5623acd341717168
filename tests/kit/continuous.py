"""Streams to ask continuous queries about, queries in each form of the language, and short hands."""

from collections.abc import Sequence
from datetime import datetime, time, timedelta, timezone

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from upstream.conf.errors import QueryRefusedError
from upstream.language import Catalog, Query, bind
from upstream.operators.relations.plan.nodes import Changes, Node, Project, Relation, Stream, Where, walk
from upstream.operators.relations.zsets import dtypes_of

MOMENT = pa.timestamp("us", "UTC")

TRADE = Stream(
    "trade", pa.schema({"sym": pa.string(), "px": pa.float64(), "n": pa.int64(), "t": MOMENT}), event_time="t"
)
QUOTE = Stream("quote", pa.schema({"sym": pa.string(), "bid": pa.float64(), "t": MOMENT}), event_time="t")
BUSES = Stream(
    "buses",
    pa.schema({"vehicle_id": pa.string(), "route_id": pa.string(), "speed": pa.float64(), "timestamp": MOMENT}),
    key=("vehicle_id",),
    event_time="timestamp",
    updates=True,
)
REQUESTS = Stream(
    "Requests",
    pa.schema({"client_id": pa.int64(), "domain": pa.string(), "URL": pa.string(), "time": MOMENT}),
    event_time="time",
)
SHIFT = Stream(
    "shift", pa.schema({"bus": pa.string(), "begins": pa.time64("ns"), "n": pa.int64(), "t": MOMENT}), event_time="t"
)
DOMAINS = Stream("Domains", pa.schema({"domain": pa.string(), "type": pa.string()}), static=True)
CATALOG = Catalog()
for _each in (TRADE, QUOTE, BUSES, REQUESTS, SHIFT, DOMAINS):
    CATALOG = CATALOG.with_stream(_each)
CATALOG = CATALOG.with_view("fast", "SELECT vehicle_id, route_id, speed FROM LATEST(buses) WHERE speed > 10")
CATALOG = CATALOG.with_function(
    "doubled", "CREATE FUNCTION doubled(x DOUBLE) RETURNS DOUBLE AS 'kit.python_functions:doubled'"
)

# One query of each form, all of which can be bound.
FORMS = (
    "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES] GROUP BY sym",
    "SELECT sym, MAX(px) AS hi FROM trade [RANGE 10 MINUTES SLIDE 1 MINUTE] AS t WHERE px > 3 GROUP BY sym",
    "SELECT * FROM trade [NOW]",
    "SELECT * FROM trade [RANGE UNBOUNDED]",
    "SELECT * FROM trade",
    "SELECT COUNT(*) AS n FROM trade [ROWS 5]",
    "SELECT COUNT(*) AS n FROM trade [PARTITION BY sym ROWS 2 WHERE px > 3] WHERE n < 7",
    "SELECT sym, COUNT(*) AS n FROM trade [PARTITION BY sym ROWS 3 SLIDE 2 WHERE px > 1] GROUP BY sym",
    "SELECT n, px FROM trade [ROWS 1 SLIDE 2] AS a WHERE sym = 'a'",
    "SELECT sym, MAX(n) AS n FROM trade [RANGE UNBOUNDED SLIDE 10 MINUTES] GROUP BY sym EMIT ON WINDOW CLOSE",
    "SELECT route_id, COUNT(*) AS n, AVG(speed) AS v FROM LATEST(buses) GROUP BY route_id",
    "SELECT route_id, COUNT(*) AS n FROM buses [PARTITION BY vehicle_id ROWS 1] GROUP BY route_id",
    "SELECT * FROM buses QUALIFY ROW_NUMBER() OVER (PARTITION BY vehicle_id ORDER BY timestamp DESC) = 1",
    "SELECT window_end, COUNT(*) AS n FROM HOP(trade, t, INTERVAL '1' DAY, INTERVAL '7' DAY) GROUP BY window_end",
    "SELECT sym, COUNT(*) AS n FROM TUMBLE(trade, t, INTERVAL '1' HOUR) GROUP BY sym EMIT ON WINDOW CLOSE",
    "SELECT window_end, sym, MAX(n) AS n FROM TUMBLE(trade, t, INTERVAL '10' MINUTE) GROUP BY window_end, sym EMIT EARLY",  # noqa: E501
    "SELECT window_end, x.sym, COUNT(*) AS c FROM HOP((SELECT a.sym, b.t FROM trade AS a JOIN quote AS b ON a.sym = b.sym AND b.t BETWEEN a.t AND a.t + INTERVAL '5' MINUTE), t, INTERVAL '10' MINUTE, INTERVAL '25' MINUTE) AS x GROUP BY window_end, x.sym EMIT ON WINDOW CLOSE",  # noqa: E501
    "SELECT px, bid FROM TUMBLE((SELECT a.t, px, bid FROM trade [RANGE 1 HOUR] AS a JOIN quote [RANGE 1 HOUR] AS b ON a.sym = b.sym), t, INTERVAL '1' HOUR)",  # noqa: E501
    "SELECT date_trunc('hour', t) AS h, sym, COUNT(*) AS n FROM trade GROUP BY 1, sym EMIT ON WINDOW CLOSE",
    "ISTREAM(SELECT sym, AVG(px) AS v FROM trade [RANGE 1 HOUR] GROUP BY sym HAVING AVG(px) < 5)",
    "DSTREAM(SELECT sym FROM trade [RANGE 1 HOUR])",
    "RSTREAM(SELECT sym FROM trade [RANGE 1 HOUR SLIDE 1 MINUTE])",
    "SELECT sym, n FROM trade [RANGE 1 HOUR] EMIT CHANGES",
    "SELECT sym, SUM(n) AS s FROM trade [RANGE 1 HOUR] GROUP BY sym EMIT PERIODIC INTERVAL '5' SECOND",
    "SELECT COUNT(*) AS n FROM trade [RANGE 1 HOUR] TABLESAMPLE (1 PERCENT) REPEATABLE (7)",
    "SELECT s.sym FROM (SELECT sym, n FROM trade WHERE px > 3) AS s TABLESAMPLE (10 PERCENT) WHERE s.n BETWEEN 1 AND 9",
    "SELECT a.sym, a.px, b.bid FROM trade [NOW] AS a JOIN quote [PARTITION BY sym ROWS 1] AS b ON a.sym = b.sym",
    "SELECT a.sym, bid FROM trade [RANGE 1 DAY] AS a LEFT JOIN quote [RANGE 1 HOUR] AS b ON a.sym = b.sym AND bid > 1",
    "SELECT a.sym, b.bid FROM trade [RANGE 1 HOUR] AS a FULL JOIN quote [RANGE 1 HOUR] AS b USING (sym)",
    "SELECT a.sym FROM trade [NOW] AS a LEFT SEMI JOIN quote [RANGE 1 HOUR] AS b ON a.sym = b.sym",
    "SELECT a.sym, b.bid FROM trade [RANGE 1 HOUR] AS a CROSS JOIN quote [NOW] AS b",
    "SELECT px, bid FROM trade AS a JOIN quote AS b ON a.sym = b.sym AND a.t BETWEEN b.t - INTERVAL '5' MINUTE AND b.t",
    "SELECT px, bid FROM trade [RANGE 1 HOUR] AS a ASOF LEFT JOIN quote [RANGE 1 DAY] AS b USING (sym, t)",
    "SELECT DISTINCT sym FROM trade",
    "SELECT date_trunc('hour', t) AS h, sym, COUNT(*) AS n FROM trade GROUP BY 1, sym",
    "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) WHERE timestamp > now() - INTERVAL '1' HOUR GROUP BY route_id",
    "SELECT vehicle_id, route_id FROM LATEST(buses) WHERE now() - INTERVAL '1' HOUR < timestamp + INTERVAL '1' MINUTE",
    "SELECT sym FROM trade [RANGE 1 HOUR] UNION SELECT sym FROM quote [RANGE 1 HOUR]",
    "SELECT sym FROM trade [RANGE 1 HOUR] EXCEPT ALL SELECT sym FROM quote [RANGE 1 HOUR]",
    "SELECT sym FROM trade [NOW] INTERSECT (SELECT sym FROM quote [NOW] UNION ALL SELECT sym FROM trade [NOW])",
    "SELECT sym FROM trade [RANGE 1 HOUR] WHERE sym IN (SELECT sym FROM quote [RANGE 1 HOUR])",
    "SELECT sym FROM trade [RANGE 1 HOUR] WHERE NOT sym IN (SELECT sym FROM quote [RANGE 1 HOUR] WHERE bid > 2)",
    "SELECT sym FROM trade [NOW] AS a WHERE EXISTS(SELECT 1 FROM quote [ROWS 9] AS b WHERE b.sym = a.sym AND bid > px)",
    "SELECT sym FROM trade [NOW] AS a WHERE NOT EXISTS(SELECT * FROM quote [RANGE 1 HOUR] AS b WHERE b.sym = a.sym)",
    "SELECT sym, n FROM trade [RANGE 1 HOUR] ORDER BY n DESC, sym NULLS LAST LIMIT 3",
    "SELECT sym, n FROM trade [RANGE 1 HOUR] QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px DESC) <= 2",
    "SELECT route_id, COUNT(*) AS n FROM fast GROUP BY route_id",
    "WITH b AS (SELECT sym, n FROM trade [RANGE 1 HOUR] WHERE n > 10) SELECT sym, COUNT(*) AS c FROM b GROUP BY sym",
    "SELECT sym, COUNT(DISTINCT n) AS d, COUNT(*) FILTER(WHERE px > 1) AS f FROM trade [RANGE 1 HOUR] GROUP BY sym",
    "SELECT CASE WHEN px > 1 THEN 'a' ELSE 'b' END AS c, CAST(n AS STRING) AS s, px IS NULL AS e FROM trade [NOW]",
    "SELECT sym, SUM(n) OVER (ORDER BY t RANGE BETWEEN INTERVAL '10' MINUTE PRECEDING AND CURRENT ROW) AS s FROM trade",
    "SELECT sym, BIT_AND(n) AS a, BIT_OR(n & 6) AS o, BIT_XOR(~n) AS x FROM trade [RANGE 1 HOUR] GROUP BY sym",
    "SELECT SHIFTLEFT(n, 2) | n ^ 1 AS b, BIT_COUNT(n) AS c, BIT_GET(n, 1) AS g FROM trade [NOW]",
    "SELECT REVERSE(sym) AS r, INITCAP(sym) AS i, TRANSLATE(sym, 'ab', 'x') AS t FROM trade [RANGE 1 HOUR]",
    "SELECT TIMESTAMPADD(MONTH, n, t) AS a, DATEDIFF(HOUR, t, DATE '2024-01-01') AS d, DATE_ADD(t, 3) AS p FROM trade",
    "SELECT sym, n, SUM(px) AS s, GROUPING(n) AS g FROM trade [RANGE 1 HOUR] GROUP BY ROLLUP (sym, n)",
    "SELECT sym, COUNT(*) AS c FROM trade [RANGE 1 HOUR] GROUP BY GROUPING SETS ((sym, n), (sym), ())",
    "SELECT sym, n, COUNT(*) AS c, GROUPING_ID() AS i FROM trade [RANGE 1 HOUR] GROUP BY CUBE (sym, n)",
    "SELECT sym FROM trade [NOW] AS a WHERE px > (SELECT AVG(px) FROM trade [RANGE 1 HOUR] AS b WHERE b.sym = a.sym)",
    "SELECT sym, (SELECT COUNT(*) FROM quote [RANGE 1 HOUR] AS b WHERE b.sym = a.sym) AS c FROM trade [NOW] AS a",
    "SELECT sym, SUM(n) - (SELECT SUM(n) FROM trade [RANGE 1 HOUR]) AS p FROM trade [RANGE 1 HOUR] GROUP BY sym",
    "SELECT AVG(px) OVER (PARTITION BY sym ORDER BY t ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS v FROM trade",
    "SELECT sym, RANK() OVER (PARTITION BY sym ORDER BY n) AS r, LAG(n) OVER (ORDER BY t) AS l FROM trade [ROWS 4]",
    "SELECT SUM(speed) OVER (PARTITION BY route_id ORDER BY speed ROWS BETWEEN 2 PRECEDING AND CURRENT ROW) AS s FROM LATEST(buses)",  # noqa: E501
    "SELECT sym, SUM(n) AS s, RANK() OVER (ORDER BY SUM(n) DESC) AS r FROM trade [RANGE 1 HOUR] GROUP BY sym",
    "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px) AS r FROM trade [ROWS 9]) WHERE r <= 2",
    "SELECT x.sym FROM ISTREAM(SELECT sym FROM trade [RANGE 1 HOUR]) [RANGE 5 MINUTES] AS x EMIT CHANGES",
    "SELECT sym, COUNT(*) AS c FROM SESSION(trade PARTITION BY sym, n, t, INTERVAL '5' MINUTE) GROUP BY sym",
    "SELECT window_end, COUNT(*) AS c FROM SESSION(buses, timestamp, INTERVAL '5' MINUTE) GROUP BY window_end",
    "SELECT sym, n FROM trade [RANGE 1 HOUR] WHERE (sym, px) NOT IN (SELECT sym, bid FROM quote [RANGE 1 HOUR])",
    "SELECT x, COUNT(sym) AS c FROM UNNEST(ARRAY(1, 2, 5)) AS u(x) LEFT JOIN trade [RANGE 1 HOUR] ON n = x GROUP BY x",
    "SELECT g, PERCENTILE(px, ARRAY(0.5, 0.9))[1] AS p FROM trade [NOW], GENERATE_SERIES(1, n % 3) AS g GROUP BY g",
    "SELECT doubled(px) AS d, MAX(doubled(n)) AS m FROM trade [RANGE 1 HOUR] WHERE doubled(n) > 2 GROUP BY doubled(px)",
)


def bound(sql: str, catalog: Catalog = CATALOG) -> Query:
    """Bind a query."""
    return bind(sql, catalog)


def relation(sql: str, catalog: Catalog = CATALOG) -> Relation:
    """Bind a query, and return the relation below its default ISTREAM."""
    plan = bind(sql, catalog).plan
    return plan.source if isinstance(plan, Changes) else plan


def only(plan: Node, kind: type) -> Node:
    """Return the only node of a kind in a plan."""
    found = [each for each in walk(plan) if isinstance(each, kind)]
    assert len(found) == 1, found
    return found[0]


def below(plan: Node) -> Node:
    """Return what stands below projections and conditions."""
    while isinstance(plan, Project | Where):
        plan = plan.source
    return plan


def refused(sql: str, *parts: str, at: str = "", catalog: Catalog = CATALOG) -> QueryRefusedError:
    """Check that a query is refused with a message of these parts, which points at a piece of the text."""
    with pytest.raises(QueryRefusedError) as caught:
        bind(sql, catalog)
    error = caught.value
    for each in parts:
        assert each in str(error), str(error)
    if at:
        shown, caret = error.excerpt.split("\n")
        start = caret.index("^")
        assert shown[start : start + caret.count("^")].rstrip() == at, str(error)
    return error


EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)
END_US = int((EPOCH + timedelta(hours=6)).timestamp() * 1_000_000)
"""After all times of :func:`rows_of_streams`, and all that leaves a window of an hour."""

_VALUES = {
    pa.string(): st.sampled_from(["a", "b", None]),
    pa.float64(): st.sampled_from([0.5, 2.0, 3.5, 12.0, None]),
    pa.int64(): st.sampled_from([0, 1, 2, 11, None]),
    pa.time64("ns"): st.sampled_from([time(), time(9, 30), time(23, 59, 59, 999_999), None]),
    # Some at one time, some minutes apart, some further than a window is long.
    MOMENT: st.sampled_from([0, 0, 1, 2, 7, 59, 60, 61, 150]).map(lambda minutes: EPOCH + timedelta(minutes=minutes)),
}


@st.composite
def rows_of_streams(
    draw: st.DrawFn, streams: Sequence[Stream] = (TRADE, QUOTE, BUSES, REQUESTS, DOMAINS)
) -> dict[str, pl.DataFrame]:
    """Rows of streams of the catalogue, with nulls in every column but the time."""
    found: dict[str, pl.DataFrame] = {}
    for stream in streams:
        one = st.tuples(*(_VALUES[each.type] for each in stream.schema))
        found[stream.name] = pl.DataFrame(
            draw(st.lists(one, max_size=6)), schema=dtypes_of(stream.schema), orient="row"
        )
    return found
