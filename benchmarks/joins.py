"""Joins of two streams by key and time, by UpStream, Spark and Flink SQL: ``python -m benchmarks.joins``.

Rows ``key, ms, id, value`` on two sides; a row meets one row of the other side within 60 s, on average. 5 % of the rows
are up to 5 s early, and watermarks are 10 s behind the newest row. Each side lies in eight Parquet files. UpStream and
Spark take two of each side a batch, and both append to Delta by Delta's sink; UpStream also runs into its own table,
which keeps every pair. Flink writes CSV files, and gets the same rows in as many Parquet files as there are cores,
each in the order of time, since it reads so many at once. The pairs of every engine are compared, one by one, with
those of a batch join by DuckDB. A pair that differs stops the benchmark.

The parts:

- ``peers``: from a query's start to its end, in a process that has done smaller ones before (with ``--quick``: none).
  *Once the query runs* is what it takes longer than a smaller one, so that starting a query is not in it.
- ``state``: the size of the state and of the checkpoints.
- ``late``: 10 % of the rows come five minutes late. How many pairs each engine misses, by the delay of its watermark.
- ``partitions``: the late rows come in files of their own: an input partition that runs five minutes behind.
- ``hot``: one key with half of all rows; ``scaling``: more rows, and more that is kept; ``memory``: rows kept, and the
  law for them. These run without Spark.
- ``kernel``: the search for pairs alone, in one thread.
"""

from __future__ import annotations

import dataclasses
import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from .environments import CACHE, flink_parquet_jars
from .harness import (
    Measured,
    Report,
    Run,
    arguments,
    cores,
    engine_command,
    fresh,
    introduce,
    labelled,
    progress,
    run,
    say_whether_met,
    whole_number,
)
from .join_growth import hot_keys, memory, plot_growth, scaling
from .join_works import JoinWork, check, expected, missing, pair_codes

__all__ = ["main"]

Int64s = npt.NDArray[np.int64]

US, TABLE, FLINK = "upstream", "upstream, own table", "flink"
SPARK = "spark"
SPARKS = {SPARK: "rocksdb 3", "spark, state format 2": "rocksdb 2", "spark, state on the heap": "heap"}
PARTS = ("peers", "state", "late", "partitions", "hot", "scaling", "memory", "kernel")
WHOLE, FURTHER = "interval join, with its start", "interval join, once the query runs"
AIMS = {SPARK: 5.0, FLINK: 3.0}
KERNEL_AIM_MS = 100.0
HOT_AIM = 3.0
LATE_PART = 0.1
LATE_FILES = 32
SHORT_DELAY_S, LONG_DELAY_S = 10, 310
SHARDS = 16
_OUT = CACHE / "joins"
_WARM_PART = 20


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes
    ----------
    work : JoinWork
        Of the comparison with the peers.
    small : JoinWork
        Of the state, and with late rows.
    kernel_rows, kernel_keys : int
        Of the search alone.
    warm : bool
        Whether smaller jobs come first.
    runs : int
        How often each is run.
    """

    work: JoinWork
    small: JoinWork
    kernel_rows: int
    kernel_keys: int
    warm: bool
    runs: int


FULL = Sizes(JoinWork(5_000_000, 100_000), JoinWork(1_000_000, 20_000), 1_000_000, 100_000, warm=True, runs=3)
QUICK = Sizes(JoinWork(200_000, 4_000), JoinWork(100_000, 2_000), 200_000, 20_000, warm=False, runs=1)


@dataclasses.dataclass(frozen=True)
class Engine:
    """How an engine is run and its pairs are read.

    Attributes
    ----------
    script : str
        A module below ``benchmarks.engines``.
    result : callable
        Reads the ids of the pairs that it left.
    sink : str
        Where UpStream writes: ``append`` or ``table``.
    state : str
        Where Spark keeps its state.
    in_turn : int or None
        How many files it reads at once, if it needs files for that.
    """

    script: str
    result: Callable[[Path], pa.Table]
    sink: str = "append"
    state: str = ""
    in_turn: int | None = None

    def measure(self, works: Sequence[JoinWork], label: str, *, whole_state: bool = False) -> tuple[Run, list[Path]]:
        """Run it in a process of its own over works, one after the other; the run, and where each result is."""
        outs = [fresh(_OUT, f"{label}-{number}") for number in range(len(works))]
        more = {"sink": self.sink, "whole_state": whole_state}
        jobs = [{**work.job(self.in_turn), **more, "out": str(out)} for work, out in zip(works, outs, strict=True)]
        given: dict[str, Any] = {"cores": cores(), "work": jobs, "state": self.state}
        command = engine_command(self.script, given)
        if self.script.endswith("flink"):  # only now there is an environment to which the jars belong
            command = engine_command(self.script, {**given, "jars": [str(jar) for jar in flink_parquet_jars()]})
        return run(command, log=f"joins-{label}"), outs

    def pairs(self, out: Path, work: JoinWork) -> Int64s:
        """Return the pairs of a result, sorted."""
        found = self.result(out)
        return pair_codes(found["id"].to_numpy(), found["id_right"].to_numpy(), work.rows)


def delta_result(path: Path) -> pa.Table:
    """Return the ids in a Delta table."""
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_table(columns=["id", "id_right"])


def csv_result(path: Path) -> pa.Table:
    """Return the ids that Flink's sink wrote."""
    import pyarrow.csv as pacsv

    convert = pacsv.ConvertOptions(
        include_columns=["id", "id_right"], column_types={"id": "int64", "id_right": "int64"}
    )
    return pa.concat_tables([pacsv.read_csv(file, convert_options=convert) for file in sorted(path.glob("*.csv"))])


def engines() -> dict[str, Engine]:
    """Return all engines, by name."""
    return {
        US: Engine("joins_upstream", delta_result),
        TABLE: Engine("joins_upstream", delta_result, sink="table"),
        **{name: Engine("joins_spark", delta_result, state=state) for name, state in SPARKS.items()},
        FLINK: Engine("joins_flink", csv_result, in_turn=cores()),
    }


def peers(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Measure each engine in its own process, after smaller works or alone."""
    work = sizes.work
    before = [_smaller(work)] * 2 if sizes.warm else []
    answer = expected(work)
    pairs = len(answer)
    progress(f"{work.rows:,} rows a side, {work.keys:,} keys, {pairs:,} pairs")
    for number in range(sizes.runs):
        for name, engine in wanted.items():
            progress(f"{name}, run {number + 1} of {sizes.runs}")
            once, outs = engine.measure([*before, work], labelled(name))
            check(name, engine.pairs(outs[-1], work), answer)
            seconds = once.reported["seconds"]
            report.add(Measured(WHOLE, name, 2 * work.rows, [seconds[-1]], once.peak_mb))
            if before:
                further = 2 * (work.rows - before[-1].rows)
                report.add(Measured(FURTHER, name, further, [seconds[-1] - seconds[-2]], once.peak_mb))
    return {"pairs": pairs}


def state(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Measure the size of state and checkpoints: once by each engine's default, once with the whole state kept."""
    del report  # nothing is timed
    work = sizes.small
    found: dict[str, Any] = {}
    print(f"\n{work.rows:,} rows a side, {work.keys:,} keys: state and checkpoints")
    print(f"  {'engine':34} {'state MB':>9} {'checkpoint MB a batch':>22} {'batches':>8} {'peak MB':>8}")
    for name, engine in wanted.items():
        if name == FLINK:  # its heap is its state, and it makes no checkpoints here
            continue
        progress(f"state, {name}")
        kept: dict[bool, dict[str, Any]] = {}
        for whole in (True, False):
            once, outs = engine.measure([work], f"state-{labelled(name)}", whole_state=whole)
            check(name, engine.pairs(outs[0], work), expected(work))
            kept[whole] = {**once.reported["states"][0], "peak_mb": round(once.peak_mb)}
        each = found[name] = {**kept[False], "state_bytes": kept[True]["state_bytes"]}
        print(
            f"  {name:34} {each['state_bytes'] / 1e6:>9.2f} {each['checkpoint_bytes_per_batch'] / 1e6:>22.2f} "
            f"{each['batches']:>8} {each['peak_mb']:>8,}"
        )
    return found


def late(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Count the pairs that are missing where rows are late, for a short and for a long delay of the watermark."""
    del report  # nothing is timed
    found: dict[str, Any] = {}
    work = dataclasses.replace(sizes.small, late=LATE_PART, files=LATE_FILES, files_per_batch=1)
    answer = expected(work)
    print(f"\n{LATE_PART:.0%} of {work.rows:,} rows a side five minutes late: {len(answer):,} pairs by a batch join")
    print(f"  {'engine':34} {'watermark delay':>16} {'missing pairs':>14} {'too many':>9}")
    for name, engine in wanted.items():
        if name not in (US, SPARK):
            continue
        for delay_s in (SHORT_DELAY_S, LONG_DELAY_S):
            progress(f"late rows, {name}, {delay_s} s")
            this = dataclasses.replace(work, delay_s=delay_s)
            _, outs = engine.measure([this], f"late-{labelled(name)}")
            got = engine.pairs(outs[0], this)
            if name == US and delay_s == LONG_DELAY_S:
                check(name, got, answer)
            lost, extra = missing(got, answer)
            found[f"{name}, {delay_s} s"] = {"pairs": len(answer), "missing": lost, "too_many": extra}
            print(f"  {name:34} {delay_s:>14} s {lost:>14,} {extra:>9,}")
    return found


def partitions(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Count the pairs that are missing where one input partition of each side runs five minutes behind the other."""
    del report  # nothing is timed
    found: dict[str, Any] = {}
    work = dataclasses.replace(sizes.small, late=LATE_PART, files=LATE_FILES, delay_s=SHORT_DELAY_S, apart=True)
    answer = expected(work)
    print(
        f"\n{LATE_PART:.0%} of {work.rows:,} rows a side in an input partition that runs five minutes behind, "
        f"watermark delay {SHORT_DELAY_S} s: {len(answer):,} pairs by a batch join"
    )
    for name in (US, SPARK):
        if name in wanted:
            progress(f"input partitions, {name}")
            _, outs = wanted[name].measure([work], f"partitions-{labelled(name)}")
            got = wanted[name].pairs(outs[0], work)
            if name == US:
                check(name, got, answer)
            lost, extra = missing(got, answer)
            found[name] = {"pairs": len(answer), "missing": lost, "too_many": extra}
            print(f"  {name:34} {lost:>14,} pairs missing, {extra:,} too many")
    return found


def hot(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Compare one key that has half of all rows with uniform keys."""
    del wanted, report
    return hot_keys(sizes.kernel_rows, sizes.kernel_keys)


def growth(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Measure how the cost grows with rows, and with what is kept."""
    del wanted, report
    return scaling(sizes.kernel_rows, sizes.kernel_keys)


def kept(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Compare the rows kept with the law."""
    del wanted, report
    return memory(sizes.kernel_rows, sizes.kernel_keys)


def kernel(sizes: Sizes, wanted: Mapping[str, Engine], report: Report) -> dict[str, Any]:
    """Measure the search for pairs of new rows with as many kept ones, in processor time."""
    from upstream.core.rows.buckets import bucket_of
    from upstream.operators.joins.band import LEFT, IntervalBand
    from upstream.operators.joins.pair_kernel import matches, sorted_rows

    del wanted, report
    rows, keys = sizes.kernel_rows, sizes.kernel_keys
    rng = np.random.default_rng(1)
    reach_ms = 60_000
    span_ms = rows * 2 * reach_ms // keys
    band = IntervalBand(reach_ms, reach_ms)
    sides = [(rng.integers(0, keys, rows), rng.integers(0, span_ms, rows)) for _ in range(2)]
    shards = [bucket_of([pa.array(key)], SHARDS) for key, _ in sides]
    none = pa.table({"t": pa.array([], pa.int64())})
    works: list[Any] = []
    for shard in range(SHARDS):
        (left, left_ms), (right, right_ms) = (
            tuple(column[of == shard] for column in side) for side, of in zip(sides, shards, strict=True)
        )
        order = np.lexsort((right_ms, right))
        # Searching never looks into the table.
        kept = sorted_rows(right[order], right_ms[order], none)
        works.append((left, left_ms, kept))
    found: dict[str, Any] = {}
    for name in ("sorted", "unsorted"):
        asked: list[Any] = []
        for left, left_ms, kept in works:
            order = np.lexsort((left_ms, left)) if name == "sorted" else np.arange(len(left))
            asked.append((left[order], *band.partners(LEFT, left_ms[order]), kept))
        times: list[float] = []
        pairs = 0
        for _ in range(max(sizes.runs, 3)):
            began = time.process_time()
            pairs = sum(len(at) for each in asked for at, _ in matches(*each))
            times.append(1e3 * (time.process_time() - began))
        found[f"{name}_ms"], found["pairs"] = round(statistics.median(times), 1), pairs
    print(f"\n{rows:,} rows against {rows:,} kept, {keys:,} keys, {SHARDS} shards: {found['pairs']:,} pairs")
    print(f"  probes sorted {found['sorted_ms']:.1f} ms, unsorted {found['unsorted_ms']:.1f} ms of processor time")
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("Joins of two streams: UpStream, Spark's own join, and Flink SQL's interval join.")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    parser.add_argument("--engine", action="append", choices=tuple(engines()), help="run only this engine; repeatable")
    parser.add_argument("--rows", type=whole_number, help="use this many rows of each side, such as 5M")
    parser.add_argument("--keys", type=whole_number, help="use this many keys [default: 2 %% of the rows]")
    parser.add_argument(
        "--files-per-batch",
        type=int,
        choices=(1, 2, 4, 8),
        help="read this many files of each side in a batch [default: 2]",
    )
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the part `scaling` as PNG or SVG")
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/.cache/joins")
    args = parser.parse_args(given)
    sizes = QUICK if args.quick else FULL
    work = sizes.work
    if args.rows:
        work = dataclasses.replace(work, rows=args.rows, keys=max(args.rows // 50, 1))
    if args.keys:
        work = dataclasses.replace(work, keys=args.keys)
    if args.files_per_batch:
        work = dataclasses.replace(work, files_per_batch=args.files_per_batch)
    sizes = dataclasses.replace(sizes, work=work, runs=args.runs or sizes.runs)
    known = engines()
    wanted = {name: known[name] for name in args.engine or known}
    introduce()
    report = Report(US)
    more: dict[str, Any] = {}
    parts = {
        "peers": peers,
        "state": state,
        "late": late,
        "partitions": partitions,
        "hot": hot,
        "scaling": growth,
        "memory": kept,
        "kernel": kernel,
    }
    try:
        for part in args.part or PARTS:
            more[part] = parts[part](sizes, wanted, report)
    finally:
        # Also what was measured before something failed.
        report.show()
        report.write(args.json, more=more)
        if not args.keep:
            shutil.rmtree(_OUT, ignore_errors=True)
    if args.plot and "scaling" in more:
        plot_growth(more["scaling"], args.plot)
    aims(report, more)


def aims(report: Report, more: Mapping[str, Any]) -> None:
    """Print for each aim whether it was met; of several ways to run an engine the quickest counts."""

    def ratio(work: str, engine: str) -> float | None:
        found = [
            row["ratio_to_us"] for row in report.rows() if row["work"] == work and row["engine"].startswith(engine)
        ]
        return min((each for each in found if each is not None), default=None)

    checks: list[tuple[str, float | None, float, bool]] = [
        (f"{work}, x {engine}", ratio(work, engine), aim, True)
        for work in (FURTHER, WHOLE)
        for engine, aim in AIMS.items()
    ]
    searched = more.get("kernel", {}).get("sorted_ms")
    checks.append(("hot key, x uniform keys, processor time", more.get("hot", {}).get("ratio"), HOT_AIM, False))
    say_whether_met([*checks, ("kernel, probes sorted, ms of processor time", searched, KERNEL_AIM_MS, False)])


def _smaller(work: JoinWork) -> JoinWork:
    """Return a smaller work, with as many rows a key."""
    return dataclasses.replace(work, rows=max(work.rows // _WARM_PART, 1), keys=max(work.keys // _WARM_PART, 1))


if __name__ == "__main__":
    main()
