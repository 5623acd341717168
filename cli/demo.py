"""``upstream demo``: an overloaded feed into two tables, and the ages of their rows."""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from ..conf.column_names import quoted
from ..conf.errors import EnvironmentMissingError, pip_install
from ..conf.locations import absolute_location
from ..conf.progress import progress
from ..conf.units import now_us
from .failures import CommandFailure, hide_traces
from .serve import workbench_beside

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from ..conf.progress import ProgressLine
    from ..sink.figures.summary import CommitSummary


UPSTREAM, MERGE = "UpStream", "foreachBatch + MERGE"
ROWS_PER_SECOND = 10_000
KEYS = 5_000
SKEW = 0.5
SECONDS_A_ROW = 0.002
LANES = 2
# An input partition of these falls silent, and holds the low-watermark back.
_FEEDS, _SILENT_AFTER = 4, "5s"
# After this share of the time, or so many seconds, the budget gets smaller.
_SHARE, _MOST_S, _SMALLER = 3, 15.0, 4
_SETTLED = 5
_DDL, _SCORE = "key BIGINT, time TIMESTAMP, value DOUBLE", "score DOUBLE"
_FEED = {
    "connector": "synthetic",
    "rowsPerSecond": str(ROWS_PER_SECOND * _FEEDS / (_FEEDS - 1)),
    "numFeeds": str(_FEEDS),
    "idleFeeds": f"{_FEEDS - 1}@{_SILENT_AFTER}",
    "keys": str(KEYS),
    "skew": str(SKEW),
    "arrivals": "poisson",
}
_BARS = " ▁▂▃▄▅▆▇█"


@dataclasses.dataclass(frozen=True)
class AgeReading:
    """The ages of the tables' rows at one moment."""

    second: float  # since UpStream's table has a row of each key
    ages_s: Mapping[str, float | None]  # by table: the mean age of its rows, in seconds; None while it has none


def demo(seconds: float, to: Path, console: Console, *, ui: bool) -> None:
    """Run both queries, print the ages as they change, and plot them at the end.

    The feed has ten times as many rows as the queries can process, since each row waits for a service. One query uses
    an update queue; the other is the usual ``foreachBatch`` that deduplicates and merges. The folder `to` gets the
    tables, the checkpoints and the plot, in place of an earlier demo's. With `ui`, the workbench shows the table with
    the queue; on a terminal both continue until Ctrl-C. After a while, the queue gets a quarter of the budget that it
    has found. A reader who doubles it sees staleness fall.
    """
    places = _places(to)
    with ExitStack() as stack:
        if ui:
            try:
                stack.enter_context(workbench_beside([str(places[UPSTREAM])], {}, console))
            except EnvironmentMissingError as missing:
                console.print(str(missing), markup=False)
                ui = False
        _run(seconds, to, places, console, stays=ui and console.is_terminal)


def _run(seconds: float, to: Path, places: Mapping[str, Path], console: Console, *, stays: bool) -> None:
    from ..conf.session import session

    table, checkpoint = _parts(places[UPSTREAM])
    console.print(
        f"{ROWS_PER_SECOND:,} rows arrive per second, of {KEYS:,} keys. Each row takes {SECONDS_A_ROW * 1e3:g} ms of a "
        f"service, so {LANES / SECONDS_A_ROW:,.0f} can be processed. One of {_FEEDS} input partitions falls silent."
    )
    hide_traces()
    spark = session("upstream demo", master=f"local[{2 * LANES}]", jvm_log=str(to / "spark.log"))
    readings, lowered = list[AgeReading](), False
    try:
        queries = [
            _with_queue(spark, places[UPSTREAM]),
            start_merge(spark, _FEED, *_parts(places[MERGE]), work=_scored, lanes=LANES),
        ]
        with progress("waiting for the first commit", console) as line:
            for reading in _readings(queries, places, seconds, line):
                readings.append(reading)
                line.show(_line(reading))
                if not console.is_terminal and len(readings) % 10 == 1:
                    console.print(_line(reading))
                if not lowered and reading.second >= min(seconds / _SHARE, _MOST_S):
                    lowered = True
                    if (rows := _lower_budget(table, checkpoint)) is not None:
                        console.print(
                            f"From now on, a batch takes {rows:,} rows at most. Double it, and staleness falls: "
                            f"[bold]upstream set {table} queue.budget={2 * rows}[/bold]"
                        )
        queries[1].stop()
        _report(readings, to, table, checkpoint, console)
        if stays:
            console.print(f"The workbench and {UPSTREAM}'s query continue until Ctrl-C.")
            with suppress(KeyboardInterrupt):
                while queries[0].isActive:
                    time.sleep(0.5)
        queries[0].stop()
    finally:
        spark.stop()


def _lower_budget(table: str, checkpoint: str) -> int | None:
    """Give the queue a fraction of the rows of its last batch, and return them; None if a reader has set a budget."""
    from ..core.feedback.control import ControlChange, ControlLog
    from ..sink.figures.summary import read_summaries
    from ..storage.folder import TableFolder

    log = ControlLog(TableFolder(checkpoint))
    if log.version():
        return None
    rows = max(int(float(f"{read_summaries(table)[-1][1].applied / _SMALLER:.1g}")), 1)
    log.put(0, ControlChange("queue/0", "budget", rows, now_us(), "upstream demo"))
    return rows


def _report(readings: Sequence[AgeReading], to: Path, table: str, checkpoint: str, console: Console) -> None:
    """Print the ages over time and by budget, what the service allows, and where the plot is."""
    from ..core.feedback.control import AUTO, ControlLog
    from ..sink.figures.summary import read_summaries
    from ..storage.folder import TableFolder

    for row in sparkline(readings):
        console.print(row, markup=False)
    began_us = now_us() - int(readings[-1].second * 1e6)
    changes = ControlLog(TableFolder(checkpoint)).changes()
    budgets = [((each.at_us - began_us) / 1e6, each.value or AUTO) for each in changes if each.attribute == "budget"]
    for budget, age in ages_by_budget(readings, [(0.0, AUTO), *budgets]):
        console.print(f"With queue.budget={budget}, {UPSTREAM}'s rows were {age:.1f} s old in the end.")
    commits = [each for _, each in read_summaries(table)]
    before = [each for each in commits if each.committed_at_us < began_us]
    if (fixed_s := fixed_cost_s([*before[-1:], *commits[len(before) :]])) is not None:
        console.print(
            f"A batch took {fixed_s:.2f} s besides its rows, so {least_age_s(fixed_s):.1f} s is the least that the "
            "service allows."
        )
    picture = draw(readings, to / "age.png")
    if picture is None:
        console.print(f"For a plot as a picture: {pip_install('demo')}", markup=False)
    else:
        console.print(f"The plot is {picture}")
    console.print(f"Look further: [bold]upstream commits {table}[/bold]")


def mean_age_s(table: str, now: int) -> float | None:
    """Return the mean age of a table's rows at `now` (µs), as a reader of plain Delta sees it; None without rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    mean = pc.mean(_times(table).cast(pa.timestamp("us")).cast(pa.int64())).as_py()
    return None if mean is None else (now - mean) / 1e6


def _times(table: str) -> pa.ChunkedArray:
    """Return the event times of a table's rows; none if there is no table."""
    import pyarrow as pa
    from deltalake import DeltaTable
    from deltalake.exceptions import TableNotFoundError

    try:
        return DeltaTable(table).to_pyarrow_table(columns=["time"])["time"]
    except TableNotFoundError:
        return pa.chunked_array([], pa.timestamp("us"))


def fixed_cost_s(commits: Sequence[CommitSummary]) -> float | None:
    """Return the mean seconds of a batch besides the service, from successive commits; None without two of them."""
    if len(commits) < 2:
        return None
    took_s = (commits[-1].committed_at_us - commits[0].committed_at_us) / 1e6
    served_s = sum(each.applied for each in commits[1:]) * SECONDS_A_ROW / LANES
    return max(took_s - served_s, 0.0) / (len(commits) - 1)


def least_age_s(fixed_s: float) -> float:
    """Return the least mean age of the rows, if each batch takes `fixed_s` besides its rows.

    Let n be the keys, b those in a batch, and c the seconds per row. A key's turn comes every n/b batches of f + c·b
    seconds. A row is one batch old when it gets visible, and half a turn older on average: (f + c·b) · (1 + n/2b),
    which is least at (√f + √(c·n/2))². Before that, the newest update of a key is as old as its updates are apart.
    """
    turn_s = KEYS * SECONDS_A_ROW / LANES
    ranks = [(number + 1) ** SKEW for number in range(KEYS)]
    apart_s = sum(ranks) * sum(1 / each for each in ranks) / KEYS / ROWS_PER_SECOND
    return (math.sqrt(fixed_s) + math.sqrt(turn_s / 2)) ** 2 + apart_s


def ages_by_budget(
    readings: Sequence[AgeReading], budgets: Sequence[tuple[float, int | str]]
) -> list[tuple[int | str, float]]:
    """Return the mean of the last ages under each budget, from the seconds at which they began."""
    ends_s = [*(second for second, _ in budgets[1:]), math.inf]
    found = list[tuple[int | str, float]]()
    for (begin_s, budget), end_s in zip(budgets, ends_s, strict=True):
        during = [each.ages_s[UPSTREAM] for each in readings if begin_s <= each.second < end_s]
        if last := [age for age in during if age is not None][-_SETTLED:]:
            found.append((budget, sum(last) / len(last)))
    return found


def sparkline(readings: Sequence[AgeReading]) -> list[str]:
    """Return a line of bars for each table, all on one scale; blanks while there is no row."""
    every = [age for each in readings for age in each.ages_s.values() if age is not None]
    if not every:
        return []
    most = max(every)
    lines = list[str]()
    for name in readings[-1].ages_s:
        ages = [each.ages_s[name] for each in readings]
        bars = "".join(_BARS[0] if age is None else _BARS[max(1, round(8 * age / most))] for age in ages)
        last = ages[-1]
        end = "no row" if last is None else f"{last:.1f} s at the end"
        lines.append(f"{name:>{len(MERGE)}} {bars} {end}")
    lines.append(f"{'':>{len(MERGE)}} mean age of the rows, one bar a second; the highest is {most:.1f} s")
    return lines


def draw(readings: Sequence[AgeReading], to: Path) -> Path | None:
    """Plot the ages over time, if matplotlib is installed; a line has gaps while there is no row."""
    try:
        import matplotlib as mpl
    except ImportError:
        return None
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5))
    for name in readings[-1].ages_s if readings else ():
        ages = [each.ages_s[name] for each in readings]
        axes.plot(
            [each.second for each in readings], [float("nan") if age is None else age for age in ages], label=name
        )
    axes.set_xlabel("seconds since each key has a row")
    axes.set_ylabel("mean age of the rows in the table (s)")
    axes.set_ylim(bottom=0)
    axes.set_title(f"{ROWS_PER_SECOND * SECONDS_A_ROW / LANES:g} times as many rows arrive as can be processed")
    axes.legend()
    figure.tight_layout()
    figure.savefig(to, dpi=120)
    plt.close(figure)
    return to


def _places(to: Path) -> dict[str, Path]:
    """Return an empty folder for each query."""
    if to.exists() and not to.is_dir():
        raise CommandFailure(f"{to} is a file. Name a folder with --to.", 2)
    places = {UPSTREAM: to / "with_queue", MERGE: to / "with_merge"}
    for place in places.values():
        if place.exists() and not (place / "checkpoint").is_dir():
            raise CommandFailure(f"{place} is not from an earlier demo. Name another folder with --to.", 2)
        shutil.rmtree(place, ignore_errors=True)
        (place / "checkpoint").mkdir(parents=True)
    return places


def _parts(place: Path) -> tuple[str, str]:
    """Return a query's table and checkpoint."""
    return str(place / "table"), str(place / "checkpoint")


def _readings(
    queries: Sequence[StreamingQuery], places: Mapping[str, Path], seconds: float, line: ProgressLine
) -> Iterator[AgeReading]:
    """Read the tables' ages each second, once each key has had its turn: before, the table holds the first rows of all.

    Spark's first batches are slow, and what they cost says nothing of later ones.
    """
    began: float | None = None
    while began is None or time.monotonic() - began < seconds:
        for query in queries:
            error = query.exception()
            if error is not None:
                raise error
        if began is None:
            rows = len(_times(_parts(places[UPSTREAM])[0]))
            began = time.monotonic() if rows == KEYS else None
            line.show(f"{rows:,} of {KEYS:,} keys have a row" if rows else "waiting for the first commit")
        if began is not None:
            ages = {name: mean_age_s(_parts(place)[0], now_us()) for name, place in places.items()}
            yield AgeReading(time.monotonic() - began, ages)
        time.sleep(1)


def _line(reading: AgeReading) -> str:
    ages = [f"{name} {'no row yet' if age is None else f'{age:.1f} s'}" for name, age in reading.ages_s.items()]
    return f"{reading.second:3.0f} s: mean age of the rows: " + ", ".join(ages)


def _with_queue(spark: SparkSession, place: Path) -> StreamingQuery:
    from ..api.stream import read

    options: dict[str, Any] = {**_FEED}
    stream = read(spark, key="key", event_time="time", coalesce=True, schema=_DDL, **options)
    table, checkpoint = _parts(place)
    queue = stream.queue(shards=LANES, stalest_keys=20)
    return queue.map(_score, _SCORE).write(table, checkpoint=checkpoint, buckets=LANES).start()


def start_merge(
    spark: SparkSession,
    feed: Mapping[str, str],
    table: str,
    checkpoint: str,
    *,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    lanes: int,
) -> StreamingQuery:
    """Start the usual recipe: ``foreachBatch`` that deduplicates, works on each row, and merges.

    `feed` has the source's options for rows of `key`, `time` and `value`; `work` adds the column `score`. At most
    `lanes` tasks run at a time.
    """
    from pyspark.sql import functions as F

    from ..core.rows.system_column import with_system_ddl

    schema = f"{_DDL}, {_SCORE}"
    spark.createDataFrame([], schema).write.format("delta").save(table)

    def merge(batch: DataFrame, _: int) -> None:
        rows = batch.where("NOT _upstream.punctuation")
        newest = rows.groupBy("key").agg(F.max_by(F.struct("time", "value"), "time").alias("row"))
        scored = newest.select("key", "row.time", "row.value").repartition(lanes).mapInArrow(work, schema).persist()
        scored.createOrReplaceTempView("scored")
        scored.sparkSession.sql(
            f"MERGE INTO delta.{quoted(absolute_location(table))} AS t USING scored AS s ON t.key = s.key "
            "WHEN MATCHED AND s.time > t.time THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        scored.unpersist()

    source = spark.readStream.format("upstream").schema(with_system_ddl(_DDL))
    rows = source.options(key="key", eventTime="time", **feed).load()
    return rows.writeStream.foreachBatch(merge).option("checkpointLocation", checkpoint).start()


def _score(batch: pa.RecordBatch) -> Any:
    """Wait for the service, for a fixed time per row."""
    import pyarrow as pa
    import pyarrow.compute as pc

    time.sleep(SECONDS_A_ROW * batch.num_rows)
    return pa.record_batch({"score": pc.multiply(batch["value"], 2.0)})


def _scored(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("score", _score(batch)["score"])
