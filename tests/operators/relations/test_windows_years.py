"""Windows and changes at the limits of time: they fail in words, and their own query alone."""

import numpy as np
import polars as pl
import pytest
from kit.continuous import TRADE
from kit.hosting import Tables, Versions, scanned
from kit.local_host import LocalHost

from upstream.conf.errors import QueryError
from upstream.hosting.messages import Command
from upstream.operators.relations.windows import check_years
from upstream.operators.relations.zsets import dtypes_of

S = 1_000_000
FIRST, LAST = -62_135_596_800 * S, 253_402_300_800 * S - 1
RAW = "SELECT * FROM TUMBLE(trade, t, INTERVAL '7' DAY)"
HOPS = "SELECT window_start, COUNT(*) AS n FROM HOP(trade, t, INTERVAL '1' DAY, INTERVAL '7' DAY) GROUP BY window_start"


def test_limits():
    check_years(np.array([], dtype=np.int64), "a window begins")
    check_years(np.array([FIRST, 0, LAST]), "a window begins")
    with pytest.raises(
        QueryError, match=r"a window begins at 0000-12-31T23:59:59\.999999\. Expected: a time in the years"
    ):
        check_years(np.array([0, FIRST - 1, FIRST - 2]), "a window begins")
    with pytest.raises(QueryError, match=r"a window ends at 10000-01-01T00:00:00"):
        check_years(np.array([LAST + 1]), "a window ends")


def hosted(texts, times):
    """The tables and the failures of queries over rows at some times, then the end of the stream."""
    versions = Versions({1: {name: (number, text) for number, (name, text) in enumerate(texts.items(), 1)}})
    host = LocalHost(versions, 2)
    tables = Tables(host.plan(1))
    schema = {name: pl.Int64() if name == "t" else kind for name, kind in dtypes_of(TRADE.schema).items()}
    rows = pl.DataFrame([("a", 1.0, 1, time) for time in times], schema=schema, orient="row")
    rows = rows.with_columns(pl.col("t").cast(dtypes_of(TRADE.schema)["t"]))
    tables.take(
        host.batch(Command(0, 1), {"trade": [scanned(TRADE, rows, range(1, rows.height + 1), {"f": times[0]})]})
    )
    tables.take(host.batch(Command(1, 1), {"trade": [scanned(TRADE, rows[:0], [], {"f": None})]}))
    names = dict(enumerate(texts, 1))
    return tables, {names[number]: reason for number, reason in tables.failed.items()}


@pytest.mark.parametrize(
    ("text", "at", "words"),
    [
        (RAW, FIRST + 5 * S, "a window begins at 0000-12-28"),
        (f"{HOPS} EMIT ON WINDOW CLOSE", FIRST + 5 * S, "a window begins at 0000-12-"),
        (RAW, LAST - 5 * S, "a window ends at 10000-01-06"),
        (f"{HOPS} EMIT ON WINDOW CLOSE", LAST - 5 * S, "a window ends at 10000-01-01"),
        ("DSTREAM(SELECT * FROM trade [RANGE 10 DAYS])", LAST - 5 * S, "the result changes at 10000-01-10"),
        ("RSTREAM(SELECT sym FROM trade [RANGE 1 HOUR SLIDE 30 MINUTES])", LAST - 5 * S, "the result changes at 10000"),
        (
            "SELECT SUM(n) AS s FROM trade [RANGE 1 HOUR] EMIT PERIODIC INTERVAL '1' DAY",
            LAST,
            "the result changes at 10",
        ),
    ],
)
def test_a_query_whose_window_leaves_the_years_fails_in_words_and_alone(text, at, words):
    texts = {"healthy": "SELECT * FROM trade", "fails": text, "inside": "ISTREAM(SELECT * FROM trade [RANGE 10 DAYS])"}
    tables, failed = hosted(texts, [at])
    assert list(failed) == ["fails"]
    assert words in failed["fails"]
    assert tables.contents(1).total() == tables.contents(3).total() == 1


def test_windows_that_end_or_begin_at_the_limits_are_given():
    hour = "SELECT * FROM TUMBLE(trade, t, INTERVAL '1' HOUR)"
    tables, failed = hosted({"hours": hour}, [FIRST, LAST - 3601 * S])
    assert failed == {}
    found = {row[4:6] for row in tables.contents(1)}
    assert len(found) == 2
