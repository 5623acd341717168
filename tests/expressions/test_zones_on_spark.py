"""Functions of timestamps in three time zones of the session: each value and each error is Spark's."""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, timedelta
from itertools import product
from typing import Any

import pyarrow as pa
import pytest

from upstream.core.rows.event_times import _changes
from upstream.expressions.nodes import Expression
from upstream.language import Catalog, bind
from upstream.operators.relations.plan.nodes import Project, Stream, walk

from .beside_spark import Pair, compare, listed, settings

pytestmark = pytest.mark.spark

ZONES = ("UTC", "Europe/Berlin", "America/St_Johns")
S = 1_000_000
SCHEMA = pa.schema(
    {
        "row": pa.int32(),
        "ts": pa.timestamp("us", "UTC"),
        "dt": pa.date32(),
        "s": pa.string(),
        "n": pa.int64(),
        "k": pa.int32(),
    }
)
CATALOG = Catalog().with_stream(Stream("given", SCHEMA, event_time="ts"))
UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")
_WRITTEN = """
HOUR(ts); MINUTE(ts); SECOND(ts); EXTRACT(SECOND FROM ts); EXTRACT(DAY FROM ts); date_part('week', ts); YEAR(ts);
MONTH(ts); DAY(ts); dayofweek(ts); dayofyear(ts); weekofyear(ts); quarter(ts); dayname(ts); DATE(ts);
CAST(ts AS DATE); CAST(ts AS STRING); CAST(ts AS TIMESTAMP_NTZ); to_date(ts); concat('at ', ts);
date_format(ts, 'yyyy-MM-dd HH:mm:ss.SSSSSS'); date_format(dt, 'yyyy-MM-dd HH'); date_format(ts, 'EEEE h a');
from_unixtime(n); from_unixtime(n, 'dd HH:mm'); timestamp_seconds(n); unix_seconds(ts); CAST(ts AS BIGINT);
CAST(s AS TIMESTAMP); try_cast(s AS TIMESTAMP); to_timestamp(s); CAST(s AS DATE); CAST(dt AS TIMESTAMP);
to_timestamp(s, 'yyyy-MM-dd HH:mm:ss'); try_to_timestamp(s, 'yyyy-MM-dd HH:mm:ss'); to_date(s, 'yyyy-MM-dd HH:mm:ss');
unix_timestamp(s); to_unix_timestamp(s, 'yyyy-MM-dd HH:mm:ss'); unix_timestamp(dt);
CAST(CAST(s AS TIMESTAMP_NTZ) AS TIMESTAMP); ts + INTERVAL '1' DAY; ts - INTERVAL '3' DAY; ts + INTERVAL '25' HOUR;
ts - INTERVAL '90' MINUTE; ts + INTERVAL '1' WEEK; ts + INTERVAL '1' MONTH; ts - INTERVAL '6' MONTH;
ts + INTERVAL '1' YEAR; dt + INTERVAL '2' HOUR; ts > dt; ts = s; ts BETWEEN '2020-01-01' AND '2026-03-29 02:30:00';
ts IN (dt, timestamp_seconds(n)); ts - timestamp_seconds(n); months_between(ts, timestamp_seconds(n));
months_between(ts, dt, false); TIMESTAMP '2026-03-29 02:30:00'; TIMESTAMP '2026-10-25 02:30:00' + INTERVAL '1' DAY;
last_day(ts); trunc(ts, 'MONTH'); make_timestamp(2026, 3, k, 2, 30, 0); next_day(ts, 'MON'); add_months(ts, 1);
date_add(ts, 1); datediff(ts, dt); CASE WHEN n > 0 THEN ts ELSE dt END; coalesce(ts, dt);
greatest(ts, timestamp_seconds(n)); hash(ts)
"""
TEXTS = (
    *listed(_WRITTEN),
    *(f"date_trunc('{unit}', ts)" for unit in UNITS),
    *(f"timestampadd({unit}, k, ts)" for unit in UNITS),
    *(f"timestampdiff({unit}, ts, timestamp_seconds(n))" for unit in UNITS),
)


def times() -> list[int]:
    """Instants at and around changes of the clocks, in µs; and others between the years 2 and 9998."""
    draw = random.Random(4)
    years = (1893, 1916, 1935, 1945, 1947, 1980, 1988, 2006, 2011, 2026, 2037, 2100, 2399, 2400, 7000)
    changes = [change for zone, year in product(ZONES[1:], years) for change, _ in _changes(zone, year)]
    more = [sign * each for each in (0, 1, 30 * 60, 3600, 7200, 86_400, 25 * 3600) for sign in (-1, 1)]
    found = [(change + each) * S + draw.choice((0, 0, -1, 123_456)) for change, each in product(changes, more)]
    found += [draw.randrange(-62_100_000_000, 253_370_000_000) * S + draw.randrange(S) for _ in range(60)]
    return found + [draw.randrange(-3_000_000_000, 4_000_000_000) * S for _ in range(100)]


def table() -> pa.Table:
    """Rows: a time, a date, and text near a change of the clocks, without and with a zone."""
    draw = random.Random(5)
    instants = times()
    texts: list[str | None] = [None, "x", "2026-03-29", "2026-10-25 02:30:00", "2026-03-29 02:30:00"]
    for zone, year in product(ZONES[1:], (1916, 1945, 1988, 2006, 2011, 2026, 2100)):
        for (change, offset), shift in product(_changes(zone, year), (-7200, -1, 0, 1800, 3599, 3600, 5400)):
            at = pa.scalar((change + offset + shift) * S, pa.timestamp("us")).as_py()
            forms = [at.isoformat(" "), f"{at.isoformat()}Z", f"{at.isoformat(' ')}+05:30"]
            texts += forms[: draw.choice((1, 1, 3))]
    size = len(instants)

    def some(values: Iterable[Any]) -> list[Any]:
        return [None if draw.random() < 0.03 else each for each in values]

    columns = [
        range(size),
        pa.array(some(instants), pa.int64()).cast(SCHEMA.field("ts").type),
        some(date(1970, 1, 1) + timedelta(days=each // (86_400 * S)) for each in instants),
        [texts[at] if at < len(texts) else draw.choice(texts) for at in range(size)],
        [draw.choice(instants) // S for _ in range(size)],
        [draw.choice((0, 1, -1, 2, 7, 26, 31, -400)) for _ in range(size)],
    ]
    return pa.table(columns, schema=SCHEMA)


def bound(sql: str, zone: str) -> Expression:
    """The expression of a query in a time zone."""
    query = bind(f"SELECT {sql} AS c FROM given [NOW]", CATALOG.in_zone(zone))
    return dict(next(each for each in walk(query.plan) if isinstance(each, Project)).columns)["c"]


@pytest.mark.parametrize("zone", ZONES)
def test_functions_of_timestamps_are_those_of_spark(interpreted, zone):
    with settings(interpreted, {"spark.sql.session.timeZone": zone}):
        pairs = [Pair(sql, bound(sql, zone)) for sql in TEXTS]
        values, failures = compare(interpreted, pairs, table(), failures=8)
    assert values > 30_000
    assert failures >= 5
