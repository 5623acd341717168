"""NEXMark's queries as the benchmark has them, over its events in any batches, beside DuckDB over all of them."""

import functools
import re
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import refused
from kit.evaluated import changes_of_frames, plain, rows_at
from kit.nexmark import BEGIN_US, CATALOG, EVENT_US, SIDE_INPUT, STREAMS, events

from upstream.language import bind
from upstream.operators.relations.zsets import dtypes_of

_FILE = Path(__file__).with_name("nexmark.sql").read_text(encoding="utf-8")
OFFICIAL = dict(re.findall(r"^-- (q\d+)\n(.*?);$", _FILE, re.MULTILINE | re.DOTALL))
COUNT = 1000
END_US = BEGIN_US + COUNT * EVENT_US + 60_000_000

_NEWEST = (r"\b(auction|person) (AS )?(?=[AP]\b)", r"LATEST(\1) \2")
_HOUR = (r"\bbid (AS )?(?=B\b)", r"bid [RANGE 1 HOUR] \1")
_CLOSE = (r"\Z", " EMIT ON WINDOW CLOSE")
_SESSIONS = [
    (r"bid B\b", "SESSION(bid PARTITION BY bidder, dateTime, INTERVAL '10' SECOND) B"),
    (r", SESSION\(.*\)\Z", ", window_start, window_end"),
    (r"SESSION_(START|END)\(.*\)", lambda found: f"window_{found[1].lower()}"),
]
# What docs/nexmark.md says that is written in another way.
CHANGES: dict[str, list[tuple[str, Any]]] = {
    "q3": [_NEWEST],
    "q5": [_CLOSE],
    "q6": [
        ("A.id, A.seller ORDER BY B.price", "id, seller ORDER BY price"),
        ("WHERE rownum", "QUALIFY rownum"),
    ],
    "q8": [_CLOSE],
    "q11": [*_SESSIONS, _CLOSE],
    "q12": [(r"TABLE B, DESCRIPTOR\(p_time\)", "TABLE bid, DESCRIPTOR(dateTime)"), _CLOSE],
    "q13": [(r", PROCTIME\(\) as p_time", ""), (" FOR SYSTEM_TIME AS OF B.p_time", "")],
    "q20": [_NEWEST, _HOUR, (r"A.`dateTime`", r"\g<0> AS opens"), (r"A.extra", r"\g<0> AS more")],
    "q22": [(rf"SPLIT_INDEX\(url, '/', {n}\)", f"SPLIT_PART(url, '/', {n + 1})") for n in (3, 4, 5)],
    "q23": [_NEWEST, _HOUR],
}
# What the text that the benchmark has is refused with, in the order of the reasons.
REFUSED = {
    "q3": "give it a window: LATEST(auction), one row per key",
    "q6": "there is no column 'rownum'",
    "q11": "SESSION(s PARTITION BY k, t, gap)",
    "q12": "there is no function proctime",
    "q13": "FOR SYSTEM_TIME is not supported",
    "q20": "two columns are named 'dateTime'",
    "q22": "split_part(s, d, n + 1)",
    "q23": "give it a window",
}
RUNS = [name for name in OFFICIAL if name in CHANGES or name not in REFUSED]


def text_of(name):
    sql = OFFICIAL[name]
    for found, put in CHANGES.get(name, []):
        sql, count = re.subn(found, put, sql)
        assert count, found
    return sql


@functools.cache
def rows_of(seed):
    side = {"key": range(1100, 1140), "value": [f"v{n}" for n in range(40)]}
    stored = pl.DataFrame(side, schema=dtypes_of(SIDE_INPUT.schema)).with_columns(__at=0)
    return {**events(COUNT, seed), SIDE_INPUT.name: stored}


@functools.cache
def database(seed):
    made = duckdb.connect()
    made.execute("SET threads = 1; SET TimeZone = 'UTC'")
    for name, rows in rows_of(seed).items():
        made.register(f"r_{name}", rows.drop("__at").to_arrow())
        made.execute(f"CREATE TABLE {name} AS SELECT * FROM r_{name}")
    made.execute("CREATE MACRO count_char(t, c) AS length(t) - length(replace(t, c, ''))")
    time_of_day = "strftime(t, CASE f WHEN 'HH:mm' THEN '%H:%M' ELSE '%Y-%m-%d' END)"
    made.execute(f"CREATE MACRO date_format(t, f) AS {time_of_day}")
    for name, slide, windows in (("tumble", 10, 1), ("hop", 2, 5)):
        for stream in STREAMS:
            start = f"to_timestamp(epoch_us(dateTime) // {slide}000000 * {slide} - {slide} * n)"
            rows = f"SELECT *, {start} AS window_start FROM {stream.name}, range({windows}) AS w(n)"
            ends = "window_start + INTERVAL 10 SECOND AS window_end"
            made.execute(f"CREATE VIEW {name}_{stream.name} AS SELECT *, {ends} FROM ({rows})")
    return made


@functools.cache
def expected(name, seed):
    if name == "q11":
        return sessions(seed)
    sql = text_of(name).replace("`", '"').removesuffix(_CLOSE[1])
    sql = re.sub(r"LATEST\((\w+)\)", r"\1", sql.replace(" [RANGE 1 HOUR]", ""))
    sql = re.sub(r"TABLE\(\s*(TUMBLE|HOP)\(TABLE (\w+).*?SECOND\)\)", r"\1_\2", sql, flags=re.DOTALL)
    return Counter(tuple(map(plain, row)) for row in database(seed).execute(sql).fetchall())


def sessions(seed):
    """Return the runs of a bidder's bids that are no more than ten seconds apart."""
    found, length = [], timedelta(seconds=10)
    for bidder, time in rows_of(seed)["bid"].select("bidder", "dateTime").sort("bidder", "dateTime").rows():
        if found and found[-1][0] == bidder and time <= found[-1][3]:
            found[-1] = (bidder, found[-1][1] + 1, found[-1][2], time + length)
        else:
            found.append((bidder, 1, time, time + length))
    return Counter(found)


@pytest.mark.parametrize("name", RUNS)
@given(seed=st.integers(0, 2), bounds=st.lists(st.integers(0, COUNT), max_size=4).map(sorted))
def test_the_result_is_that_of_all_events_together(name, seed, bounds):
    changes = changes_of_frames(bind(text_of(name), CATALOG).plan, rows_of(seed), bounds, END_US)
    found = rows_at(changes)
    assert found
    assert found == expected(name, seed)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_written_in_another_way_is_refused_as_it_is(name):
    catalog = CATALOG.with_view("B", "SELECT *, PROCTIME() as p_time FROM bid") if name == "q12" else CATALOG
    refused(OFFICIAL[name], REFUSED[name], catalog=catalog)


def test_all_queries_are_here():
    assert [*OFFICIAL] == [f"q{number}" for number in range(24)]
    assert {*CHANGES} <= {*REFUSED} | {"q5", "q8"}
