"""Queries of whose rows something is known: the columns that identify them, or those that are never null."""

from kit.continuous import FORMS, bound, relation

BUS, QUOTE = "LATEST(buses) AS a", "quote [PARTITION BY sym ROWS 1] AS b"
TRADE = "trade [PARTITION BY sym ROWS 1] AS t"
GROUPS = "SELECT sym, n, COUNT(*) AS c FROM trade [RANGE 1 HOUR] GROUP BY sym, n"
KEYS = {
    "SELECT route_id, COUNT(*) AS n FROM LATEST(buses) GROUP BY route_id": {"route_id"},
    f"SELECT c, COUNT(*) AS n FROM ({GROUPS}) GROUP BY c": {"c"},
    "SELECT COUNT(*) AS n FROM LATEST(buses)": set(),
    "SELECT speed, vehicle_id AS v FROM LATEST(buses) WHERE speed > 3": {"v"},
    "SELECT speed, route_id FROM LATEST(buses)": None,
    "SELECT upper(vehicle_id) AS v FROM LATEST(buses)": None,
    "SELECT sym, px FROM trade [PARTITION BY sym ROWS 1]": {"sym"},
    "SELECT sym, px FROM trade [PARTITION BY sym ROWS 2]": None,
    "SELECT px FROM trade [ROWS 1]": set(),
    "SELECT sym, px FROM trade [RANGE 1 HOUR]": None,
    "SELECT DISTINCT sym, px FROM trade [RANGE 1 HOUR]": {"sym", "px"},
    "SELECT DISTINCT vehicle_id, speed FROM LATEST(buses)": {"vehicle_id"},
    "SELECT sym FROM trade [NOW] UNION SELECT sym FROM quote [NOW]": {"sym"},
    "SELECT sym FROM trade [NOW] UNION ALL SELECT sym FROM quote [NOW]": None,
    "SELECT vehicle_id FROM LATEST(buses) EXCEPT ALL SELECT sym FROM quote [RANGE 1 HOUR]": {"vehicle_id"},
    "SELECT sym FROM quote [RANGE 1 HOUR] INTERSECT ALL SELECT vehicle_id FROM LATEST(buses)": {"sym"},
    "SELECT vehicle_id, speed FROM LATEST(buses) UNION SELECT sym, bid FROM quote [RANGE 1 HOUR]": {
        "vehicle_id",
        "speed",
    },
    f"SELECT vehicle_id, bid FROM {BUS} JOIN {QUOTE} ON a.route_id = b.sym": {"vehicle_id"},
    f"SELECT vehicle_id, b.sym, bid FROM {BUS} LEFT JOIN {QUOTE} ON a.speed < b.bid": {"vehicle_id", "sym"},
    f"SELECT b.sym, vehicle_id FROM {QUOTE} RIGHT JOIN {BUS} ON a.route_id = b.sym": {"vehicle_id"},
    f"SELECT t.sym AS one, b.sym AS two FROM {TRADE} FULL JOIN {QUOTE} ON t.px = b.bid": None,
    f"SELECT sym, px FROM {TRADE} LEFT SEMI JOIN quote [NOW] AS b ON t.px = b.bid": {"sym"},
    f"SELECT b.sym, bid FROM {BUS} LEFT JOIN {QUOTE} ON a.vehicle_id = b.sym": None,
    f"SELECT vehicle_id, c FROM {BUS} JOIN ({GROUPS}) AS b ON a.route_id = b.sym": None,
    "SELECT sym, n FROM trade [NOW] QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px) = 1": {"sym"},
    "SELECT sym, n FROM trade [NOW] QUALIFY ROW_NUMBER() OVER (PARTITION BY sym ORDER BY px) <= 2": None,
    "SELECT sym, n FROM trade [RANGE 1 HOUR] ORDER BY n LIMIT 1": set(),
    "SELECT sym, ROW_NUMBER() OVER (PARTITION BY sym ORDER BY n) AS r FROM trade [NOW]": {"sym", "r"},
    "SELECT ROW_NUMBER() OVER (ORDER BY n) AS r, px FROM trade [NOW]": {"r"},
    "SELECT sym, RANK() OVER (PARTITION BY sym ORDER BY n) AS r FROM trade [NOW]": None,
}

TIMES = "SELECT a.t, a.sym, b.t AS u FROM trade [NOW] a"
NEVER_NULL = {
    "SELECT vehicle_id, speed, timestamp FROM LATEST(buses)": {"vehicle_id", "timestamp"},
    "SELECT sym, px, t FROM trade [NOW]": {"t"},
    "SELECT domain FROM Domains": set(),
    "SELECT sym, px, n FROM trade [NOW] WHERE sym IS NOT NULL AND px > 1": {"sym", "px"},
    "SELECT sym, px FROM trade [NOW] WHERE sym IN ('a', 'b') AND (px > 1 OR n > 1)": {"sym"},
    "SELECT 1 AS one, NULL AS none, coalesce(sym, 'x') AS c, sym IS NULL AS b, sym FROM trade [NOW]": {"one", "c", "b"},
    "SELECT sym, COUNT(*) AS n, MAX(px) AS m FROM trade [NOW] GROUP BY sym": {"n"},
    f"{TIMES} JOIN quote [NOW] b ON a.sym = b.sym": {"t", "sym", "u"},
    f"{TIMES} LEFT JOIN quote [NOW] b ON a.sym = b.sym": {"t"},
    f"{TIMES} RIGHT JOIN quote [NOW] b ON a.sym = b.sym": {"u"},
    f"{TIMES} FULL JOIN quote [NOW] b ON a.sym = b.sym": set(),
    "SELECT sym, t FROM trade [NOW] a LEFT SEMI JOIN quote [NOW] b ON a.sym = b.sym": {"t", "sym"},
    "SELECT sym, t FROM trade [NOW] a LEFT ANTI JOIN quote [NOW] b ON a.sym = b.sym": {"t"},
    "SELECT t, sym FROM trade [NOW] UNION SELECT t, sym FROM quote [NOW] WHERE sym > 'a'": {"t"},
    "SELECT t, sym FROM trade [NOW] EXCEPT SELECT t, sym FROM quote [NOW] WHERE sym > 'a'": {"t"},
    "SELECT t, sym FROM trade [NOW] INTERSECT SELECT t, sym FROM quote [NOW] WHERE sym > 'a'": {"t", "sym"},
    "SELECT t, px, RANK() OVER (ORDER BY n) AS r, LAG(t) OVER (ORDER BY n) AS l FROM trade [NOW]": {"t", "r"},
    "SELECT window_end, t FROM TUMBLE(trade, t, INTERVAL '1' HOUR)": {"window_end", "t"},
}
PLANS = {**{sql: bound(sql).plan for sql in FORMS}, **{sql: relation(sql) for sql in (*KEYS, *NEVER_NULL)}}
