"""What a micro-batch of updates costs in a table that is there: ``python -m benchmarks.sink``.

Tables of 1, 10 and 50 million keys (``k BIGINT, ts BIGINT, v DOUBLE, name STRING``); batches of updates of different
keys, uniform or Zipf. Each engine gets the same files of updates, one a micro-batch, by Spark's own file source; what
is measured is the whole trigger, from planning to Spark's commit log. The first two batches of each are its start, and
left out. Afterwards the table is compared with what the updates give, row by row, and read whole and by key, beside one
of the same rows freshly written. Two works go on for a thousand commits, for what it does to reading: after a quarter
of them, half and three quarters (each version as it was), at the end, and after `upstream maintain --compact`; once
more for a table that nobody looks after, which says what maintenance takes of a batch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

import upstream

from .environments import CACHE
from .harness import (
    arguments,
    cores,
    engine_command,
    fresh,
    introduce,
    labelled,
    machine,
    progress,
    run,
    say_whether_met,
    whole_number,
)
from .sink_works import ENGINES, FULL, QUICK, US, Engine, Work

__all__ = ["main"]

Int64s = npt.NDArray[np.int64]

_HOME = CACHE / "sink"
_SKIPPED = 2
_PER_BUCKET = 1_000_000
_NEW = 0.01  # of the updates, keys that the table does not have
_BATCHES, _QUICK_BATCHES = 32, 6
_ASKED = 4711  # the key of which the row is read


@dataclasses.dataclass(frozen=True)
class ReadTimes:
    """What it takes to read a table.

    Attributes
    ----------
    scan_spark, point_spark, scan_polars, point_polars : float
        Seconds for the whole table, and for one key's row.
    bucket_polars : float
        For one key's row with a filter on its bucket as well; NaN in a table without buckets.
    """

    scan_spark: float
    point_spark: float
    scan_polars: float
    point_polars: float
    bucket_polars: float

    def times(self, fresh: ReadTimes) -> ReadTimes:
        """Return each figure as a multiple of another reading's."""
        return ReadTimes(*(a / b for a, b in zip(dataclasses.astuple(self), dataclasses.astuple(fresh), strict=True)))


@dataclasses.dataclass(frozen=True)
class Result:
    """What an engine did with a work.

    Attributes
    ----------
    p50, p99, most, mean : float
        Seconds of a whole micro-batch.
    batches : int
        Over how many.
    bytes_per_update : float
        Written to disk below the table, the log included.
    files : int
        Data files that the table has at the end.
    reading, fresh : ReadTimes
        Of the table afterwards, and of one of the rows that our table has then, freshly written.
    load_seconds : float
        To make the table.
    peak_mb : float
        Memory of all of the engine's processes.
    compacting_seconds : float or None
        What `upstream maintain --compact` takes after them; None where it was not asked for.
    compacted : ReadTimes or None
        Of the table after that.
    meanwhile : list of ReadTimes
        Of the table as it was after a quarter of the batches, half and three quarters; empty where there are few.
    """

    work: str
    engine: str
    p50: float
    p99: float
    most: float
    mean: float
    batches: int
    bytes_per_update: float
    files: int
    reading: ReadTimes
    fresh: ReadTimes
    load_seconds: float
    peak_mb: float
    compacting_seconds: float | None = None
    compacted: ReadTimes | None = None
    meanwhile: list[ReadTimes] = dataclasses.field(default_factory=list)


def rows(keys: Int64s, at: int) -> pa.Table:
    """Return rows of some keys as of a time."""
    names = pa.array(np.char.add("name-", (keys % 1000).astype(str)))
    return pa.table({"k": keys, "ts": np.full(len(keys), at), "v": values(keys, at), "name": names})


def values(keys: Int64s, at: int) -> npt.NDArray[np.float64]:
    """Return the value that each key's row has at a time."""
    return (keys * 31 + at * 7) % 1_000_003 / 8


def base(keys: int) -> Path:
    """Return a folder with the table's rows as Parquet files; create it if it is missing."""
    folder = _HOME / f"rows-{keys}"
    if not (folder / "done").exists():
        fresh(_HOME, folder.name)
        folder.mkdir(parents=True)
        for number, low in enumerate(range(0, keys, 1_000_000)):
            pq.write_table(rows(np.arange(low, min(keys, low + 1_000_000)), 0), folder / f"{number:04d}.parquet")
        (folder / "done").touch()
    return folder


def updated(work: Work, batch: int) -> Int64s:
    """Return the keys of a batch, each once."""
    random = np.random.default_rng(batch)
    if work.zipf:
        drawn = (work.keys * random.random(work.updates * 4) ** 4).astype(
            np.int64
        )  # a quarter of the rows on 0.4 % of the keys
        keys = np.unique(drawn * 7919 % work.keys)
        return keys[: work.updates]
    new = int(work.updates * _NEW)
    old = np.unique(random.integers(0, work.keys, work.updates))
    return np.concatenate([old, work.keys + batch * work.updates + np.arange(new)])


def updates_of(work: Work, batches: int) -> Path:
    """Write a file for each batch, in order, and return their folder."""
    folder = _HOME / labelled(f"updates {work}")
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(batches):
        file = folder / f"{batch:05d}.parquet"
        if not file.exists():
            made = file.with_suffix(".part")
            pq.write_table(rows(updated(work, batch), batch + 1), made)
            # Spark takes files by the time at which they were changed.
            os.utime(made, (1_700_000_000 + batch, 1_700_000_000 + batch))
            made.rename(file)
    for file in sorted(folder.glob("*.parquet"))[batches:]:
        file.unlink()
    return folder


def expected(work: Work, batches: int) -> npt.NDArray[np.float64]:
    """Return the value of each key at the end; NaN for a key without rows."""
    found = np.full(work.keys + (batches + 1) * work.updates, np.nan)
    found[: work.keys] = values(np.arange(work.keys), 0)
    for batch in range(batches):
        keys = updated(work, batch)
        found[keys] = values(keys, batch + 1)
    return found


def loaded(engine: Engine, keys: int) -> tuple[Path, float]:
    """Return the table before the first batch, and the seconds to load it; engines with the same base share it."""
    table = _HOME / f"table-{engine.base}-{keys}"
    done = _HOME / f"{table.name}.json"
    if not done.exists():
        shutil.rmtree(table, ignore_errors=True)
        progress(f"loading {table.name}")
        job = {
            "do": "load",
            "engine": engine.kind,
            "vectors": engine.vectors,
            "base": str(base(keys)),
            "table": str(table),
            "keys": keys,
        }
        done.write_text(json.dumps(_process(job, keys, "sink-load").reported))
    return table, json.loads(done.read_text())["seconds"]


def measure(engine: Engine, work: Work, batches: int, fresh_reading: ReadTimes | None) -> Result:
    """Run an engine's batches on a copy of the table, and see that the table is right."""
    origin, load_seconds = loaded(engine, work.keys)
    table = fresh(_HOME, "written")
    shutil.copytree(origin, table, copy_function=_linked)
    before = {path: path.stat().st_size for path in table.rglob("*") if path.is_file()}
    job = {
        "do": "batches", "engine": engine.kind, "maintenance": engine.maintenance,
        "table": str(table), "updates": str(updates_of(work, batches)),
    }  # fmt: skip
    once = _process(job, work.keys, f"sink-{labelled(engine.name)}")
    written = sum(path.stat().st_size for path in table.rglob("*") if path.is_file() and path not in before)
    check(table, expected(work, batches), engine.name)
    reading = read(table, work.keys)
    seconds = once.reported["seconds"][_SKIPPED:batches]
    changed = sum(len(updated(work, batch)) for batch in range(batches))
    files = len(_files(table))
    beside = fresh_reading or read(written_anew(table, work.keys), work.keys)
    compacting_seconds, compacted, meanwhile = None, None, list[ReadTimes]()
    if work.commits:
        meanwhile = [read(table, work.keys, version) for version in _quarters(table)]
        compacting_seconds = compact(table)
        check(table, expected(work, batches), f"{engine.name}, compacted")
        compacted = read(table, work.keys)
    return Result(
        str(work), engine.name, statistics.median(seconds), float(np.quantile(seconds, 0.99)), max(seconds),
        statistics.mean(seconds), len(seconds), written / changed, files, reading, beside, load_seconds, once.peak_mb,
        compacting_seconds, compacted, meanwhile,
    )  # fmt: skip


def compact(table: Path) -> float:
    """Return the seconds of `upstream maintain --compact`, its start included."""
    progress("upstream maintain --compact")
    began = time.perf_counter()
    asked = "from upstream.cli.main import main; main()"
    subprocess.run([sys.executable, "-c", asked, "maintain", str(table), "--compact"], check=True, stdout=sys.stderr)
    return time.perf_counter() - began


def check(table: Path, wanted: npt.NDArray[np.float64], engine: str) -> None:
    """Refuse a table that does not hold what the updates give."""
    import polars as pl

    got = pl.scan_delta(str(table)).select("k", "v").collect()
    keys, found = got["k"].to_numpy(), np.full(len(wanted), np.nan)
    found[keys] = got["v"].to_numpy()
    if len(keys) != np.count_nonzero(~np.isnan(wanted)) or not np.array_equal(found, wanted, equal_nan=True):
        raise SystemExit(f"{engine}: the table is not what the updates give")


def written_anew(table: Path, keys: int) -> Path:
    """Write the rows of a table to a fresh table, and return its path."""
    import polars as pl

    progress("the same rows, freshly written")
    rows_now = fresh(_HOME, "rows-now")
    rows_now.mkdir(parents=True)
    got = pl.scan_delta(str(table)).select("k", "ts", "v", "name").collect()
    for number, low in enumerate(range(0, got.height, 1_000_000)):
        pq.write_table(got.slice(low, 1_000_000).to_arrow(), rows_now / f"{number:04d}.parquet")
    anew = fresh(_HOME, "anew")
    _process(
        {"do": "load", "engine": "auto", "vectors": False, "base": str(rows_now), "table": str(anew)}, keys, "sink-anew"
    )
    return anew


def _quarters(table: Path) -> list[int]:
    from deltalake import DeltaTable

    last = DeltaTable(table).version()
    return [last * part // 4 for part in (1, 2, 3)]


def read(table: Path, keys: int, version: int | None = None) -> ReadTimes:
    """Return the seconds of Spark and Polars, the best of five, for the given version or the current one."""
    import polars as pl

    spark = _process({"do": "read", "table": str(table), "key": _ASKED, "version": version}, keys, "sink-read").reported
    one = pl.col("k") == _ASKED

    def of_all() -> int:
        return pl.scan_delta(str(table), version=version).select("k", "v", "name").collect().height

    def of_one(*more: pl.Expr) -> int:
        return pl.scan_delta(str(table), version=version).filter(one, *more).collect().height

    bucket = math.nan
    with contextlib.suppress(upstream.errors.UpstreamError):  # a table that is not laid out by us
        in_bucket = pl.col("_upstream_bucket") == upstream.LatestTable(table).key_bucket(_ASKED)
        bucket = _least_seconds(lambda: of_one(in_bucket), 1)
    return ReadTimes(spark["scan"], spark["point"], _least_seconds(of_all), _least_seconds(of_one, 1), bucket)


def _least_seconds(reading: Callable[[], int], rows: int | None = None) -> float:
    seconds: list[float] = []
    for _ in range(5):
        began = time.perf_counter()
        found = reading()
        seconds.append(time.perf_counter() - began)
        assert rows in (None, found)
    return min(seconds)


def aims(results: Sequence[Result]) -> None:
    """Print whether the aims for 10,000 random updates were met."""
    found = {(each.work, each.engine): each for each in results}
    ours = f"{US} (auto)"

    def p50(keys: int, engine: str) -> float | None:
        each = found.get((str(Work(keys, 10_000)), engine))
        return None if each is None else each.p50

    def ratio(one: float | None, other: float | None) -> float | None:
        return None if one is None or other is None else one / other

    def merge(keys: int) -> float | None:
        both = [each for each in (p50(keys, "MERGE"), p50(keys, "MERGE, deletion vectors")) if each is not None]
        return min(both, default=None)

    left_alone = {each.work: each.mean for each in results if each.engine == f"{US} (left alone)"}
    say_whether_met(
        [
            *(
                (f"{each.work}: a batch, x left alone", each.mean / left_alone[each.work], 1.1, False)
                for each in results
                if each.engine == ours and each.work in left_alone
            ),
            ("1 M keys, x the better MERGE", ratio(merge(1_000_000), p50(1_000_000, ours)), 5, True),
            ("10 M keys, x the better MERGE", ratio(merge(10_000_000), p50(10_000_000, ours)), 25, True),
            ("50 M keys in terms of 1 M", ratio(p50(50_000_000, ours), p50(1_000_000, ours)), 2, False),
            *(
                (f"{each.work}{when}: {what.replace('_', ', ')}, x fresh", times, 1.5, False)
                for each in results
                if each.meanwhile and each.engine == ours
                for when, reading in (*_over_time(each), ("", each.reading), (", compacted", each.compacted))
                if reading is not None
                for what, times in dataclasses.asdict(reading.times(each.fresh)).items()
                if what != "bucket_polars"  # another question than the table was made for
            ),
        ]
    )


def _over_time(each: Result) -> list[tuple[str, ReadTimes]]:
    return [(f", {part}/4 of it", reading) for part, reading in enumerate(each.meanwhile, start=1)]


def show(results: Sequence[Result]) -> None:
    """Print a table per work, with reading as a multiple of the time for a freshly written table of the same rows."""
    for work in dict.fromkeys(each.work for each in results):
        print(f"\n{work}")
        print(
            f"  {'engine':26} {'mean s':>7} {'p50 s':>7} {'p99 s':>7} {'x ours':>7} {'B/update':>9} {'files':>6} "
            f"{'load':>7} {'MB':>6}"
            f" | reading x fresh: {'Spark':>6} {'a key':>6} {'Polars':>6} {'a key':>6} {'with bucket':>11}"
        )
        ours = next((each.p50 for each in results if each.work == work and each.engine.startswith(US)), math.nan)
        of_work = [each for each in results if each.work == work]
        for each in of_work:
            print(
                f"  {each.engine:26} {each.mean:>7.3f} {each.p50:>7.3f} {each.p99:>7.3f} {each.p50 / ours:>7.2f} "
                f"{each.bytes_per_update:>9,.0f} {each.files:>6} {each.load_seconds:>7.1f} "
                f"{each.peak_mb:>6,.0f} | {'':16} {_in_line(each.reading.times(each.fresh))}"
            )
            for when, reading in _over_time(each):
                print(f"    {when.lstrip(', '):81} | {'':16} {_in_line(reading.times(each.fresh))}")
            if each.compacted is not None:
                heading = f"compacted, in {each.compacting_seconds:.1f} s"
                print(f"    {heading:81} | {'':16} {_in_line(each.compacted.times(each.fresh))}")
        print(f"  {'freshly written, seconds':83} | {'':16} {_in_line(of_work[0].fresh)}")


def _in_line(reading: ReadTimes) -> str:
    return (
        f"{reading.scan_spark:>6.2f} {reading.point_spark:>6.2f} {reading.scan_polars:>6.3f} "
        f"{reading.point_polars:>6.3f} "
        f"{reading.bucket_polars:>11.3f}"
    )


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("What a micro-batch of updates costs in a table that is there, beside what Delta's users do.")
    parser.add_argument(
        "--engine", action="append", metavar="NAME", help="run only engines whose names begin with this"
    )
    parser.add_argument(
        "--keys", action="append", type=whole_number, help="use only tables of this many keys, such as 10M"
    )
    parser.add_argument("--updates", action="append", type=whole_number, help="use only batches of this many updates")
    parser.add_argument(
        "--commits",
        type=int,
        help="run only works of this many commits, with --keys any number; 0 for those of the usual few",
    )
    parser.add_argument(
        "--batches", type=int, help="run this many batches [default: 32, with --quick 6; fewer for slow engines]"
    )
    args = parser.parse_args(given)
    introduce()
    results: list[Result] = []
    try:
        works = QUICK if args.quick and not args.keys else FULL
        if args.keys and args.commits:
            works = [Work(keys, 10_000, commits=args.commits) for keys in args.keys]
        for work in works:
            if (args.keys and work.keys not in args.keys) or (args.updates and work.updates not in args.updates):
                continue
            if args.commits not in (None, work.commits):
                continue
            anew: ReadTimes | None = None
            for engine in ENGINES:
                if args.engine and not engine.name.startswith(tuple(args.engine)):
                    continue
                if work.keys > engine.most_keys or (work.commits and engine.kind != "auto"):
                    continue
                if engine.maintenance == "off" and not work.commits:
                    continue
                progress(f"{work}: {engine.name}")
                usual = min(args.batches or (_QUICK_BATCHES if args.quick else _BATCHES), engine.most_batches)
                results.append(measure(engine, work, (work.commits or usual) + _SKIPPED, anew))
                anew = results[-1].fresh
    finally:
        show(results)
        if args.json is not None:
            found = [dataclasses.asdict(each) for each in results]
            args.json.write_text(json.dumps({"machine": machine(), "results": found}, indent=1) + "\n")
        for name in ("written", "anew", "rows-now"):
            fresh(_HOME, name)
    aims(results)


def _process(job: dict[str, Any], keys: int, label: str) -> Any:
    buckets = max(16, keys // _PER_BUCKET)
    return run(engine_command("sink_batches", {"cores": cores(), "buckets": buckets, **job}), log=label)


def _files(table: Path) -> list[str]:
    from deltalake import DeltaTable

    return DeltaTable(table).file_uris()


def _linked(origin: str, copy: str) -> None:
    """Link a data file, which never changes; copy a file of the log, which is small."""
    if "_delta_log" in origin:
        shutil.copy2(origin, copy)
    else:
        os.link(origin, copy)


if __name__ == "__main__":
    main()
