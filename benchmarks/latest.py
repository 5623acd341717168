"""The newest row per key of a CSV, by this project and its peers: ``python -m benchmarks.latest``.

Four files of rows ``key, ms, value``; event times rise by 1 ms, 5 % of the rows are up to 5 s early. Every engine's
result is compared exactly with one that was computed by sorting, before any time is shown.

*Whole process* is from the start of a process to its end, start-up of everything included. *Steady state* is the same
job in a process that has done a smaller one of its kind before: from the query's start to its last commit. *Further
rows* is what that job takes longer than a second run of the smaller one, so that starting a query is not in it (not
with ``--quick``, whose jobs are too small for that).
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from .data import feed, reference
from .environments import CACHE
from .harness import (
    Measured,
    Report,
    Run,
    arguments,
    assert_equal,
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
from .scaling import plot_scaling

__all__ = ["main"]

US = "upstream"
WHOLE, STEADY = "newest per key, whole process", "newest per key, steady state"
FURTHER = "newest per key, further rows"
FIRST = "first commit after the session is up"
PARTS = ("peers", "small", "formats", "scaling")
_OUT = CACHE / "out"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes
    ----------
    rows, keys : int
        Of the comparison with the peers.
    warm_rows : int
        Of the job that is done before a steady state is measured.
    row_steps, key_steps : sequence of int
        Of the scaling.
    table_keys, batches : int
        Of the small batches: keys in the table, batches measured of each kind.
    runs : int
        How often each is run.
    """

    rows: int
    keys: int
    warm_rows: int
    row_steps: Sequence[int]
    key_steps: Sequence[int]
    table_keys: int
    batches: int
    runs: int


FULL = Sizes(
    20_000_000, 100_000, 1_000_000, (5_000_000, 20_000_000, 80_000_000),
    (1_000, 10_000, 100_000, 1_000_000, 10_000_000), 1_000_000, 30, 3,
)  # fmt: skip
QUICK = Sizes(1_000_000, 100_000, 200_000, (500_000, 1_000_000, 2_000_000), (1_000, 100_000), 100_000, 3, 1)


@dataclasses.dataclass(frozen=True)
class Engine:
    """How an engine is run and its result is read.

    Attributes
    ----------
    name : str
    script : str
        A module below ``benchmarks.engines``.
    job : mapping
        What it is told besides the work.
    kind : str
        Which form of the data it reads.
    result : callable
        Reads what it left.
    """

    name: str
    script: str
    job: dict[str, Any]
    kind: str
    result: Callable[[Path], pa.Table]

    def measure(self, works: Sequence[tuple[int, int, str]], label: str) -> tuple[Run, list[Path]]:
        """Run it in a process of its own over (rows, keys, kind of file); the run, and where each result is."""
        outs = [fresh(_OUT, f"{label}-{number}") for number in range(len(works))]
        work = [{"data": str(feed(*each)), "out": str(out)} for each, out in zip(works, outs, strict=True)]
        command = engine_command(self.script, {**self.job, "cores": cores(), "work": work})
        return run(command, log=label), outs


def engines() -> dict[str, Engine]:
    """Return all engines by name; an engine with a batch size is there once for each size."""
    found = [
        Engine(US, "latest_upstream", {"options": {}, "sink": {}}, "csv", delta_result),
        *(
            Engine(
                f"spark recipe ({files} files a batch)", "latest_spark", {"files_per_batch": files}, "csv", delta_result
            )
            for files in (4, 2, 1)
        ),
        Engine("flink", "latest_flink", {"mini_batch": 0}, "bare", csv_result),
        *(
            Engine(f"flink mini-batch ({size:,})", "latest_flink", {"mini_batch": size}, "bare", csv_result)
            for size in (50_000, 5_000, 500_000)
        ),
        Engine("duckdb (batch)", "latest_batch", {"engine": "duckdb"}, "csv", parquet_result),
        Engine("polars (batch)", "latest_batch", {"engine": "polars"}, "csv", parquet_result),
    ]
    return {engine.name: engine for engine in found}


def delta_result(path: Path) -> pa.Table:
    """Return a Delta table's user columns, sorted by key."""
    from deltalake import DeltaTable

    return DeltaTable(str(path)).to_pyarrow_table(columns=["key", "ms", "value"]).sort_by("key")


def csv_result(path: Path) -> pa.Table:
    """Return the rows of a folder of CSV files, sorted by key."""
    import pyarrow.csv as pacsv

    return pa.concat_tables([pacsv.read_csv(file) for file in sorted(path.glob("*.csv"))]).sort_by("key")


def parquet_result(path: Path) -> pa.Table:
    """Return the rows of a Parquet file, sorted by key."""
    import pyarrow.parquet as pq

    return pq.read_table(path).sort_by("key")


def peers(sizes: Sizes, wanted: Sequence[str], report: Report) -> None:
    """Measure UpStream and its peers at one size, whole process and steady state."""
    warm, full = (sizes.warm_rows, sizes.keys), (sizes.rows, sizes.keys)
    expected = reference(*full)
    for family in _families(wanted):
        best = (
            family[0]
            if sizes.runs == 1 or len(family) == 1
            else min(family, key=lambda each: _steady(each, warm, full).reported["seconds"][-1])
        )
        whole: list[Run] = []
        steady: list[Run] = []
        before = [(*warm, best.kind)] * min(sizes.runs, 2)
        for number in range(sizes.runs):
            progress(f"{best.name}, run {number + 1} of {sizes.runs}")
            once, (out,) = best.measure([(*full, best.kind)], f"{labelled(best.name)}-whole")
            assert_equal(best.name, best.result(out), expected)
            whole.append(once)
            again, outs = best.measure([*before, (*full, best.kind)], f"{labelled(best.name)}-steady")
            assert_equal(best.name, best.result(outs[-1]), expected)
            steady.append(again)
        peak = max(each.peak_mb for each in whole)
        report.add(Measured(WHOLE, best.name, sizes.rows, [each.seconds for each in whole], peak))
        peak = max(each.peak_mb for each in steady)
        report.add(Measured(STEADY, best.name, sizes.rows, [each.reported["seconds"][-1] for each in steady], peak))
        if len(before) == 2:
            longer = [each.reported["seconds"][2] - each.reported["seconds"][1] for each in steady]
            report.add(Measured(FURTHER, best.name, sizes.rows - sizes.warm_rows, longer, peak))


def small(sizes: Sizes, report: Report) -> None:
    """Measure the first commit, the batch of 1,000 rows, and the batch without a row."""
    for name in (US, "spark recipe"):
        for number in range(sizes.runs):
            progress(f"small batches, {name}, run {number + 1} of {sizes.runs}")
            out = fresh(_OUT, "small")
            job = {"engine": name, "cores": cores(), "out": str(out), "keys": sizes.table_keys, "rows": 1000}
            job["batches"] = sizes.batches
            command = engine_command("small_batches", job)
            once = run(command, log=f"{labelled(name)}-small")
            reported, peak = once.reported, once.peak_mb
            for work, size, seconds in (
                (FIRST, 1000, [reported["first_commit"]]),
                ("batch of 1,000 rows, file to commit", 1000, reported["file_to_commit"]["some"]),
                ("batch of 1,000 rows, Spark's trigger", 1000, reported["trigger"]["some"]),
                ("batch with no row left, file to commit", 0, reported["file_to_commit"]["none"]),
            ):
                report.add(Measured(work, name, size, seconds, peak))


def formats(sizes: Sizes, report: Report) -> None:
    """Measure UpStream's steady state on the other kinds of file."""
    ours = engines()[US]
    expected = reference(sizes.rows, sizes.keys)
    kinds = ("json", "parquet")
    works = [(rows, sizes.keys, kind) for kind in kinds for rows in (sizes.warm_rows, sizes.rows)]
    for number in range(sizes.runs):
        progress(f"formats, run {number + 1} of {sizes.runs}")
        once, outs = ours.measure(works, f"{US}-formats")
        for place, kind in enumerate(kinds):
            assert_equal(f"{US} on {kind}", ours.result(outs[2 * place + 1]), expected)
            seconds = [once.reported["seconds"][2 * place + 1]]
            report.add(Measured(f"steady state, {kind}", US, sizes.rows, seconds, once.peak_mb))


def scaling(sizes: Sizes, report: Report) -> None:
    """Measure UpStream's steady state as rows and keys grow, one after the other in one process."""
    ours = engines()[US]
    by_rows = [("steady state as rows grow", rows, sizes.keys, None) for rows in sizes.row_steps]
    by_keys = [("steady state as keys grow", sizes.rows, keys, keys) for keys in sizes.key_steps]
    steps = [*by_rows, *by_keys]
    works = [(sizes.warm_rows, sizes.keys, "csv"), *((rows, keys, "csv") for _, rows, keys, _ in steps)]
    for number in range(sizes.runs):
        progress(f"scaling, run {number + 1} of {sizes.runs}")
        once, outs = ours.measure(works, f"{US}-scaling")
        for (work, rows, keys, named), seconds, out in zip(steps, once.reported["seconds"][1:], outs[1:], strict=True):
            assert_equal(f"{US}, {rows:,} rows, {keys:,} keys", ours.result(out), reference(rows, keys))
            report.add(Measured(work, US, rows, [seconds], once.peak_mb, named))


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("The newest row per key: this project, Spark's usual recipe, Flink, DuckDB and Polars.")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    parser.add_argument(
        "--engine", action="append", metavar="NAME", help="run only engines whose names begin with this"
    )
    parser.add_argument("--rows", type=whole_number, help="compare with the peers on this many rows, such as 20M")
    parser.add_argument("--keys", type=whole_number, help="use this many keys in it")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot the scaling as PNG or SVG")
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/.cache/out")
    args = parser.parse_args(given)
    sizes = QUICK if args.quick else FULL
    changes = {"rows": args.rows, "keys": args.keys, "runs": args.runs}
    sizes = dataclasses.replace(sizes, **{name: value for name, value in changes.items() if value})
    parts = args.part or PARTS
    introduce()
    report = Report(US)
    work = {"small": small, "formats": formats, "scaling": scaling}
    try:
        for part in parts:
            if part == "peers":
                peers(sizes, args.engine or [""], report)
            else:
                work[part](sizes, report)
    finally:
        # Also what was measured before something failed.
        report.show()
        report.write(args.json, sizes=dataclasses.asdict(sizes))
        if not args.keep:
            shutil.rmtree(_OUT, ignore_errors=True)
    aims(report)
    if "scaling" in parts and args.plot:
        plot_scaling(report.rows(), args.plot)


def aims(report: Report) -> None:
    """Print for each aim whether it was met."""
    rows = report.rows()

    def of(work: str, engine: str, field: str) -> float | None:
        return next((row[field] for row in rows if row["work"] == work and row["engine"].startswith(engine)), None)

    checks = [
        ("steady state, x Spark recipe", of(STEADY, "spark recipe", "ratio_to_us"), 8.0, True),
        ("steady state, x Flink mini-batch", of(STEADY, "flink mini-batch", "ratio_to_us"), 8.0, True),
        ("steady state, million rows/s", _millions(of(STEADY, US, "rows_per_second")), 2.0, True),
        ("whole process, x Flink mini-batch", of(WHOLE, "flink mini-batch", "ratio_to_us"), 3.0, True),
        ("batch of 1,000 rows, seconds", of("batch of 1,000 rows, file to commit", US, "seconds"), 0.5, False),
        ("batch with no row left, seconds", of("batch with no row left, file to commit", US, "seconds"), 0.5, False),
    ]
    say_whether_met(checks)


def _steady(engine: Engine, warm: tuple[int, int], full: tuple[int, int]) -> Run:
    progress(f"{engine.name}, to find the best batch size")
    return engine.measure([(*warm, engine.kind), (*full, engine.kind)], f"{labelled(engine.name)}-pilot")[0]


def _families(wanted: Sequence[str]) -> list[list[Engine]]:
    """Group the engines that differ in their batch size only."""
    found: dict[str, list[Engine]] = {}
    for name, engine in engines().items():
        if any(name.startswith(prefix) for prefix in wanted):
            found.setdefault(name.partition(" (")[0], []).append(engine)
    return list(found.values())


def _millions(rate: float | None) -> float | None:
    return None if rate is None else rate / 1e6


if __name__ == "__main__":
    main()
