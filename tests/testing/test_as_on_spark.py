"""The same rows through Spark and through the tester: the same results, batch by batch and over a restart."""

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from kit.feeds import write_csv
from kit.queries import run_to_end
from kit.tables import read_letters
from pyspark.sql import SparkSession

import upstream as us
from upstream.testing import StreamTester

SCHEMA = "k STRING, at TIMESTAMP, v DOUBLE, g INT"
WATERMARK = us.Watermark.bounded("2 minutes").guarded(confirmations=1)
START = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
# Key, minute, value: of two batches. In the second there are repeats, a row that supersedes another one, and late rows.
BATCHES = [
    [("a", 0, 1), ("b", 1, -2), ("a", 3, 3), ("c", 4, 4), ("a", 3, 5), ("d", 6, 6), ("e", 9, 7), ("b", 9.5, 8)],
    [("a", 3, 9), ("b", 9.5, 1), ("c", 8, 2), ("e", 11, 3), ("f", 13, 4), ("b", 12, 5), ("a", 17, -6), ("c", 16, 7)],
]
Steps = Callable[[Any], Any]
N = us.count()


def windows(stream: Any) -> Any:
    kept = stream.where("v > 0").select("v", "v * 2 - 1 AS odd")
    return kept.window("5 minutes", "2 minutes", shards=2, emit="all", lateness=us.Lateness(dead_letters=True)).agg(
        n=N, odd=us.sum("odd"), mean=us.avg("v")
    )


def window(*given: str, **options: Any) -> Steps:
    return lambda stream: stream.window(*given, shards=2, **options).agg(n=N, total=us.sum("v"))


def routes(stream: Any) -> Any:
    return stream.where("v <> 4", on_leave="delete").group_by("g", shards=3)


STEPS: dict[str, Steps] = {
    "windows": windows,
    "distinct": lambda s: s.where("v > 0", on_leave="delete").distinct(shards=2, dead_letters=True),
    "queue": lambda s: s.queue(policy="in-place", budget=3, shards=1),  # by its place alone, whatever the clock
    "queue, first in first out": lambda s: s.queue(policy="fifo", budget=3, shards=1),
    "queue that sheds": lambda s: s.queue(policy="shed", budget=3, shards=1),
    "queue of heavier keys": lambda s: s.queue(policy="in-place", budget=2, shards=1, weight="IF(k = 'e', 1000, NULL)"),
    "queue of keys that rest": lambda s: s.queue(
        policy="in-place", budget=None, shards=1, access_interval="CASE k WHEN 'a' THEN 3600 WHEN 'b' THEN -1 END"
    ),
    "windows as late as may be": window("5 minutes", emit=us.Emission("all", flush="lazy")),
    "windows, displaced": window("5 minutes", emit="all"),
    "windows, adaptive": window("5 minutes", emit="all"),
    "windows of complete keys": window("5 minutes", emit="all"),
    "windows, a few at a time": window("5 minutes", emit=us.Emission("all", flush="slow", flush_rows=4)),
    "eager windows": window("5 minutes", "2 minutes", emit="eager"),
    "landmark windows": window("all", "5 minutes", emit="all"),
    "windows of rows": window("2 rows", emit="all"),
    "windows of the rows of all": window(us.Windower("4 rows", "2 rows", of="stream"), emit="all"),
    "windows that rows end": window(us.Windower("5 minutes", "2 rows", order="arrival"), emit="all"),
    "windows of other groups": window("5 minutes", by=("g",), emit="all"),
    "windows of finer groups": window("5 minutes", by=("k", "g"), emit="all"),
    "windows over re-emitted windows": lambda s: window("15 minutes", emit=us.Emission("all", early=True))(
        s.window("5 minutes", shards=2, emit=us.Emission("all", early=True)).agg(v=us.max("v"))
    ),
    "sessions": lambda s: s.session_window(
        "3 minutes",
        shards=2,
        emit=us.Emission("all", early=True),
        lateness=us.Lateness("10 minutes", dead_letters=True),
    ).agg(n=N, top=us.max("v")),
    "groups": lambda s: routes(s).agg(n=N, mean=us.avg("v")),
    "windows of groups": lambda s: (
        routes(s).window("5 minutes", emit=us.Emission(early=True)).agg(n=N, top=us.max("v"))
    ),
}
WITH_LATE_ROWS = {"windows", "distinct"}
IN_ORDER = {name for name in STEPS if name.startswith("queue")}
IN_PARTS = {*IN_ORDER, "windows, a few at a time"}
WATERMARKS = {
    "windows, displaced": us.Watermark.displaced(2).guarded(confirmations=1),
    "windows, adaptive": us.Watermark.adaptive(late=0.2, first_delay="2 minutes").guarded(confirmations=1),
    "windows of complete keys": us.Watermark.embedded(),
}
# Keys without values: all of their rows before the minute have come.
COMPLETE = {"windows of complete keys": [[("a", 10), ("b", 11)], [("f", 20), ("a", 20)]]}


def in_words(rows: list[dict[str, Any]]) -> list[str]:
    """Rows without what differs by clock and zone."""

    def plain(value: Any) -> Any:
        if isinstance(value, datetime):
            return round(value.astimezone(timezone.utc).timestamp() * 1e6)
        return value

    return [
        str({name: plain(value) for name, value in row.items() if name != "_upstream"})
        + (" deleted" if (row.get("_upstream") or {}).get("deleted") else "")
        for row in rows
    ]


def late_row(letter: dict[str, Any]) -> dict[str, Any]:
    """The row of a dead letter."""
    others = ("origin", "reason", "_upstream_source", "_upstream_deleted")
    row = {name: value for name, value in letter.items() if name not in others}
    return {**row, "at": datetime.fromisoformat(row["at"]), "_upstream": {"deleted": letter["_upstream_deleted"]}}


def batches_of(name: str) -> list[list[dict[str, Any]]]:
    return [
        [{"k": k, "at": START + timedelta(minutes=m), "v": float(v), "g": int(v) % 3} for k, m, v in rows]
        + [{"k": k, "at": START + timedelta(minutes=m)} for k, m in complete]
        for rows, complete in zip(BATCHES, COMPLETE.get(name, [[], []]), strict=True)
    ]


def given_on_spark(spark: SparkSession, place: Path, name: str) -> list[list[str]]:
    """What each batch gives; the query starts anew when the second file has come."""
    given: list[list[str]] = []

    def take(df: Any, number: int) -> None:
        del number
        rows = [row.asDict(recursive=True) for row in df.collect()]
        given.append(in_words([row for row in rows if not row["_upstream"]["punctuation"]]))

    for number, rows in enumerate(batches_of(name)):
        cells = [[row["k"], f"{row['at']:%Y-%m-%d %H:%M:%S}", row.get("v", ""), row.get("g", "")] for row in rows]
        write_csv(place / "feed" / f"{number}.csv", "k,at,v,g", cells)
        stream = us.read(
            spark, place / "feed", key="k", event_time="at", watermark=WATERMARKS.get(name, WATERMARK),
            schema=SCHEMA, fileFormat="csv", onEnd="keep",
        )  # fmt: skip
        df = STEPS[name](stream).dataframe(place / "checkpoint")
        writer = df.writeStream.foreachBatch(take).option("checkpointLocation", str(place / "checkpoint"))
        run_to_end(writer)
    return [each for each in given if each]


@pytest.mark.parametrize("name", STEPS)
def test_spark_gives_what_the_tester_gives(spark, tmp_path, name):
    watermark = WATERMARKS.get(name, WATERMARK)
    tester = StreamTester(STEPS[name], SCHEMA, key="k", event_time="at", watermark=watermark)
    expected: list[list[str]] = []
    for rows in batches_of(name):
        expected.append(in_words(tester.batch(rows)))
        while name in IN_PARTS and (more := in_words(tester.batch())):
            expected.append(more)
    found = given_on_spark(spark, tmp_path, name)
    if name not in IN_ORDER:
        expected, found = ([sorted(each) for each in batches] for batches in (expected, found))
    assert found == [each for each in expected if each]
    assert sum(map(len, expected)) >= 3
    if name in WITH_LATE_ROWS:
        late = read_letters(tmp_path / "checkpoint" / "dead_letters", "late")
        assert late
        assert sorted(in_words(list(map(late_row, late)))) == sorted(in_words(tester.late))
