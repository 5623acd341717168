"""Expressions in a time zone: which depend on it, and what Python's zoneinfo shows."""

from datetime import date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import polars as pl
import pyarrow as pa
import pytest

from upstream.conf.errors import OptionError
from upstream.expressions.compile import compiled
from upstream.expressions.kinds import DATE, DURATION, INT, LOCAL_TIMESTAMP, LONG, TEXT, TIMESTAMP, UTC
from upstream.expressions.nodes import Constant, Field
from upstream.expressions.types import call, cast
from upstream.expressions.zones import in_zone, zone_of_session

BERLIN = "Europe/Berlin"
T, D, S, N = Field("t", TIMESTAMP), Field("d", DATE), Field("s", TEXT), Field("n", LONG)
SCHEMA = pa.schema({"t": TIMESTAMP, "d": DATE, "s": TEXT, "n": LONG})


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=timezone.utc)


def values(expression, zone=BERLIN, **columns):
    given = {"t": [], "d": [], "s": [], "n": []} | columns
    size = max(map(len, given.values()))
    table = pa.table({name: pa.array(given[name] or [None] * size, SCHEMA.field(name).type) for name in SCHEMA.names})
    made = compiled(in_zone(expression, zone), SCHEMA).evaluate(pl.DataFrame(pl.from_arrow(table)))
    return made.to_arrow().cast(expression.type).to_pylist()


@pytest.mark.parametrize(
    ("name", "zone"),
    [
        *(("UTC", UTC), ("Etc/UTC", UTC), ("GMT", UTC), ("Z", UTC), ("+00:00", UTC), ("Europe/Berlin", BERLIN)),
        *(("+02:00", "+02:00"), ("GMT+2", "+02:00"), ("UTC-03:30", "-03:30"), ("+1", "+01:00")),
    ],
)
def test_names_of_a_session_s_zone(name, zone):
    assert zone_of_session(name) == zone


@pytest.mark.parametrize("name", ["Mars/Base", "PST", "", "+01:00:30"])
def test_a_zone_that_is_none_is_refused(name):
    with pytest.raises(OptionError, match="time zone"):
        zone_of_session(name)


DAY = Constant(timedelta(days=1), DURATION)
HOUR = Constant(timedelta(hours=1), DURATION)
MINUTES = Constant("MINUTE", TEXT)


@pytest.mark.parametrize(
    "expression",
    [
        *(call("unix_seconds", [T]), call("timestamp_seconds", [N]), call("year", [D]), call("hash", [T])),
        *(call("lt", [T, T]), cast(T, LONG), cast(D, TEXT), cast(Field("l", LOCAL_TIMESTAMP), TEXT), cast(S, DATE)),
        *(call("add", [T, HOUR]), call("subtract", [D, D]), call("timestampadd", [MINUTES, N, T])),
    ],
)
def test_what_is_the_same_in_every_zone_stays_as_it_is(expression):
    assert in_zone(expression, BERLIN) is expression


def test_nothing_changes_in_utc():
    expression = call("hour", [T])
    assert in_zone(expression, UTC) is expression


def test_the_zone_is_in_the_expression_once():
    made = in_zone(call("hour", [cast(S, TIMESTAMP)]), BERLIN)
    assert str(made) == f"hour(local_time(text_time(s, '{BERLIN}'), '{BERLIN}'))"
    assert str(in_zone(call("add", [T, DAY]), BERLIN)).startswith("add_interval_in_zone(t, ")


def test_what_clocks_show_is_that_of_zoneinfo():
    times = [at("2026-03-29T00:59:59"), at("2026-03-29T01:00:00"), at("2026-10-25T00:30:00"), at("2026-10-25T01:30:00")]
    local = [each.astimezone(ZoneInfo(BERLIN)) for each in times]
    assert values(call("hour", [T]), t=times) == [each.hour for each in local] == [1, 3, 2, 2]
    assert values(cast(T, TEXT), t=times) == [str(each.replace(tzinfo=None)) for each in local]
    assert values(cast(T, DATE), t=[at("2026-06-30T22:30:00")]) == [date(2026, 7, 1)]
    assert values(call("from_unixtime", [N]), n=[0]) == ["1970-01-01 01:00:00"]
    assert values(call("hour", [T]), "-03:30", t=[at("2026-06-30T02:00:00")]) == [22]


def test_local_times_that_clocks_skip_are_later_and_those_they_show_twice_the_first():
    texts = ["2026-03-29 02:30:00", "2026-10-25 02:30:00", "2026-10-25 02:30:00+01:00", None]
    wanted = [at("2026-03-29T01:30:00"), at("2026-10-25T00:30:00"), at("2026-10-25T01:30:00"), None]
    assert values(cast(S, TIMESTAMP), s=texts) == wanted
    parsed = call("to_timestamp", [S, Constant("yyyy-MM-dd HH:mm:ss", TEXT)])
    assert values(parsed, s=texts[:2]) == wanted[:2]
    # A day begins when clocks show its first instant: in Sao Paulo, this one began at one o'clock.
    assert values(cast(D, TIMESTAMP), "America/Sao_Paulo", d=[date(2018, 11, 4)]) == [at("2018-11-04T03:00:00")]


def test_days_are_those_of_the_zone_and_hours_the_same_everywhere():
    before = [at("2026-03-28T12:00:00")]
    assert values(call("add", [T, DAY]), t=before) == [at("2026-03-29T11:00:00")]
    assert values(call("subtract", [T, DAY]), t=[at("2026-03-29T11:00:00")]) == before
    assert values(call("add", [T, HOUR]), t=before) == [at("2026-03-28T13:00:00")]
    month = Constant((1, 0, 0), pa.month_day_nano_interval())
    assert values(call("add", [T, month]), t=[at("2026-02-28T12:00:00")]) == [at("2026-03-28T12:00:00")]
    assert values(call("add", [T, month]), t=[at("2026-03-01T12:00:00")]) == [at("2026-04-01T11:00:00")]
    days = call("timestampadd", [Constant("DAY", TEXT), Constant(1, INT), T])
    assert values(days, t=before) == [at("2026-03-29T11:00:00")]


def test_a_truncated_time_keeps_its_offset_where_clocks_show_it_twice():
    times = [at("2026-10-25T00:40:00"), at("2026-10-25T01:40:00")]
    hours = call("date_trunc", [Constant("HOUR", TEXT), T])
    assert values(hours, t=times) == [at("2026-10-25T00:00:00"), at("2026-10-25T01:00:00")]
    assert values(call("date_trunc", [Constant("MONTH", TEXT), T]), t=times) == [at("2026-09-30T22:00:00")] * 2
