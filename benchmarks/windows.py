"""Windows per key, by this project, Spark's own windows and Flink SQL: ``python -m benchmarks.windows``.

Rows ``key, ms, value`` over 480 s of event time, each key's about 10 s apart unless said, 5 % of them up to 5 s early,
in eight CSV files; the last row is so late that it closes all windows in every engine, so that all results are compared
(but those of its own key) with the answer of a batch query by DuckDB. A result that differs stops the benchmark. Ours
and Spark take two files a batch; Flink gets the same rows in as many files as there are cores, each in the order of
time, since it reads so many at once.

What is shown is from a query's start to its end, in a process that has done smaller ones of its kind before (with
``--quick``: the other works). *Further rows* is what it takes longer than a smaller one, so that starting a query is
not in it. Engines that would take too long get fewer rows of fewer keys, as many rows a key in as much time; rows per
second are compared. Fewer keys are to their advantage.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from .data import window_feed
from .environments import CACHE
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
)
from .scaling import plot_windows
from .window_works import Work, check, holds

__all__ = ["main"]

US, SPARK, FLINK = "upstream", "spark", "flink"
PARTS = ("peers", "state", "linear")
FILES_PER_BATCH = 2
ROWS_GROW = "sliding 10 min by 1 min, latest per key, as rows grow"
_OUT = CACHE / "windows"
_WARM_PART = 20
_MINUTE = 60

TUMBLING = Work("tumbling 60 s", _MINUTE, _MINUTE)
SLIDING = Work("sliding 10 min by 1 min", 10 * _MINUTE, _MINUTE)
LATEST = Work("sliding 10 min by 1 s, latest per key", 10 * _MINUTE, 1, emit="latest")
EVERY = Work("sliding 10 min by 1 s, every result", 10 * _MINUTE, 1)
HOLISTIC = Work("sliding 10 min by 1 min, median and distinct", 10 * _MINUTE, _MINUTE, aggregates="holistic")

Size = tuple[int, int]  # rows, keys


@dataclasses.dataclass(frozen=True)
class Case:
    """A work at a size.

    Attributes
    ----------
    work : Work
    size : (int, int)
        Rows and keys.
    fewer : mapping
        The sizes of engines that would take too long at that.
    aims : mapping
        How many times an engine's rows per second ours are to be.
    """

    work: Work
    size: Size
    fewer: Mapping[str, Size] = dataclasses.field(default_factory=dict)
    aims: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def size_of(self, engine: str) -> Size:
        """Return the size for an engine."""
        return self.fewer.get(engine, self.size)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes
    ----------
    cases : sequence of Case
        Of the comparison with the peers.
    state : mapping
        Works whose state is measured, and how many rows and keys.
    row_steps, slide_steps : sequence of int
        Of what it costs us: rows, and seconds from one window to the next.
    keys : int
        Of the same.
    warm : bool
        Whether smaller jobs come first.
    runs : int
        How often each is run.
    """

    cases: Sequence[Case]
    state: Mapping[Work, Size]
    row_steps: Sequence[int]
    slide_steps: Sequence[int]
    keys: int
    warm: bool
    runs: int


FULL = Sizes(
    cases=(
        Case(TUMBLING, (5_000_000, 100_000), aims={SPARK: 5, FLINK: 5}),
        Case(SLIDING, (5_000_000, 100_000), aims={SPARK: 10, FLINK: 6}),
        Case(
            LATEST,
            (5_000_000, 100_000),
            fewer={SPARK: (250_000, 5_000), FLINK: (500_000, 10_000)},
            aims={SPARK: 100, FLINK: 20},
        ),
        # A thousand keys of 100 rows each per 48 s: results are many, keys few.
        Case(EVERY, (1_000_000, 1_000), aims={SPARK: 10, FLINK: 5}),
        Case(HOLISTIC, (1_000_000, 20_000)),
    ),
    state={SLIDING: (1_000_000, 20_000), LATEST: (50_000, 1_000)},
    row_steps=(1_250_000, 2_500_000, 5_000_000, 10_000_000),
    slide_steps=(600, 300, 120, 60, 30, 10, 5, 1),
    keys=100_000,
    warm=True,
    runs=3,
)  # fmt: skip
QUICK = Sizes(
    cases=(
        Case(TUMBLING, (50_000, 1_000), aims=FULL.cases[0].aims),
        Case(SLIDING, (50_000, 1_000), aims=FULL.cases[1].aims),
        Case(LATEST, (50_000, 1_000), fewer={SPARK: (5_000, 100), FLINK: (5_000, 100)}, aims=FULL.cases[2].aims),
        Case(EVERY, (10_000, 10), aims=FULL.cases[3].aims),
        Case(HOLISTIC, (10_000, 200)),
    ),
    state={SLIDING: (50_000, 1_000)},
    row_steps=(25_000, 50_000),
    slide_steps=(600, 60, 10),
    keys=1_000,
    warm=False,
    runs=1,
)


@dataclasses.dataclass(frozen=True)
class Engine:
    """How an engine's result is read.

    Attributes
    ----------
    script : str
        A module below ``benchmarks.engines``.
    side_by_side : int or None
        How many files it reads at once, if it needs files for that.
    result : callable
        Reads what it left: ``key, window_end`` in milliseconds, and the aggregates.
    """

    script: str
    side_by_side: int | None
    result: Callable[[Path, Work], pa.Table]

    def measure(
        self, works: Sequence[tuple[Work, Size]], label: str, *, whole_state: bool = False
    ) -> tuple[Run, list[Path]]:
        """Run it in a process of its own over works, one after the other; the run, and where each result is."""
        outs = [fresh(_OUT, f"{label}-{number}") for number in range(len(works))]
        more = {"files_per_batch": FILES_PER_BATCH, "whole_state": whole_state}
        jobs = [
            {**work.job, **more, "data": str(window_feed(*size, self.side_by_side)), "out": str(out)}
            for (work, size), out in zip(works, outs, strict=True)
        ]
        return run(engine_command(self.script, {"cores": cores(), "work": jobs}), log=f"windows-{label}"), outs


def table_result(path: Path, work: Work) -> pa.Table:
    """Return the result in UpStream's Delta table."""
    from deltalake import DeltaTable

    del work
    rows = DeltaTable(str(path)).to_pyarrow_table()
    end = pc.cast(pc.cast(rows["window_end"], pa.timestamp("ms")), pa.int64())
    return rows.drop_columns("window_end").append_column("window_end", end)


def parquet_result(path: Path, work: Work) -> pa.Table:
    """Return the result in Spark's files, reduced to the newest per key unless all windows are wanted."""
    import pyarrow.parquet as pq

    rows = pa.concat_tables([pq.read_table(file) for file in sorted(path.glob("*.parquet"))])
    if work.emit == "all":
        return rows
    last = rows.group_by("key").aggregate([("window_end", "max")]).rename_columns(["key", "window_end"])
    return last.join(rows, ["key", "window_end"])


def csv_result(path: Path, work: Work) -> pa.Table:
    """Return the result of Flink's sink."""
    import pyarrow.csv as pacsv

    del work
    tables = [pacsv.read_csv(file) for file in sorted(path.glob("*.csv"))]
    return pa.concat_tables([table for table in tables if table.num_rows])


def engines() -> dict[str, Engine]:
    """Return all engines, by name."""
    return {
        US: Engine("windows_upstream", None, table_result),
        SPARK: Engine("windows_spark", None, parquet_result),
        FLINK: Engine("windows_flink", cores(), csv_result),
    }


def peers(sizes: Sizes, wanted: Wanted, report: Report) -> dict[str, Any]:
    """Measure every case by every engine.

    Each runs in its own process after smaller ones, or with ``--quick`` all in one.
    """
    cases = [case for case in sizes.cases if case.work.name.startswith(wanted.works)]
    for together in [[case] for case in cases] if sizes.warm else [cases]:
        for name, engine in wanted.engines.items():
            works = [(case.work, case.size_of(name)) for case in together]
            before = [(work, _smaller(size)) for work, size in works] * 2 if sizes.warm else []
            label = f"{labelled(together[0].work.name)}-{labelled(name)}"
            answers = [holds(work, *size) for work, size in works]
            for number in range(sizes.runs):
                progress(f"{', '.join(work.name for work, _ in works)}: {name}, run {number + 1} of {sizes.runs}")
                once, outs = engine.measure([*before, *works], label)
                seconds = once.reported["seconds"]
                for place, (work, (rows, _)) in enumerate(works, len(before)):
                    check(name, work, engine.result(outs[place], work), answers[place - len(before)])
                    report.add(Measured(work.name, name, rows, [seconds[place]], once.peak_mb))
                if before:
                    work, (rows, _) = before[-1]
                    further, longer = works[0][1][0] - rows, seconds[-1] - seconds[-2]
                    report.add(Measured(f"{work.name}, further rows", name, further, [longer], once.peak_mb))
    return {}


def state(sizes: Sizes, wanted: Wanted, report: Report) -> dict[str, Any]:
    """Measure the size of state and checkpoints: once by each engine's default, once with the whole state kept."""
    del report  # nothing is timed
    found = {}
    for work, size in sizes.state.items():
        answer = holds(work, *size)
        print(f"\n{work.name}, {size[0]:,} rows, {size[1]:,} keys: state and checkpoints")
        print(f"  {'engine':34} {'state MB':>9} {'checkpoint MB a batch':>22} {'batches':>8} {'peak MB':>8}")
        for name, engine in wanted.engines.items():
            progress(f"state, {work.name}, {name}")
            label = f"state-{labelled(work.name)}-{labelled(name)}"
            whole, outs = engine.measure([(work, size)], label, whole_state=True)
            check(name, work, engine.result(outs[0], work), answer)
            usual = whole
            if name != FLINK:  # which has no checkpoints but whole ones
                usual, outs = engine.measure([(work, size)], label)
                check(name, work, engine.result(outs[0], work), answer)
            each = {**usual.reported["states"][0], "state_bytes": whole.reported["states"][0]["state_bytes"]}
            each["peak_mb"] = round(usual.peak_mb)
            found[f"{work.name}, {name}"] = each
            print(
                f"  {name:34} {each['state_bytes'] / 1e6:>9.2f} {each['checkpoint_bytes_per_batch'] / 1e6:>22.2f} "
                f"{each['batches']:>8} {each['peak_mb']:>8,}"
            )
    return found


def linear(sizes: Sizes, wanted: Wanted, report: Report) -> dict[str, Any]:
    """Measure how UpStream's cost grows with the rows, and with the overlap of windows."""
    if US not in wanted.engines:
        return {}
    ours = wanted.engines[US]
    most = max(size for size in sizes.row_steps if size <= sizes.cases[0].size[0])
    works = [
        *(
            (dataclasses.replace(SLIDING, name=ROWS_GROW, emit="latest"), (rows, sizes.keys))
            for rows in sizes.row_steps
        ),
        *((_sliding_by(slide), (most, sizes.keys)) for slide in sizes.slide_steps),
    ]
    for number in range(sizes.runs):
        progress(f"linear, run {number + 1} of {sizes.runs}")
        once, outs = ours.measure([(SLIDING, _smaller((most, sizes.keys))), *works], "linear")
        for (work, size), seconds, out in zip(works, once.reported["seconds"][1:], outs[1:], strict=True):
            check(US, work, ours.result(out, work), holds(work, *size))
            report.add(Measured(work.name, US, size[0], [seconds], once.peak_mb))
    rows = report.rows()
    overlaps = {_sliding_by(slide).name: 10 * _MINUTE // slide for slide in sizes.slide_steps}
    return {
        "by_rows": [(row["size"], row["seconds"]) for row in rows if row["work"] == ROWS_GROW],
        "by_overlap": [(overlaps[row["work"]], row["seconds"]) for row in rows if row["work"] in overlaps],
    }


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What the command line asks for: engines, and how the names of works begin."""

    engines: Mapping[str, Engine]
    works: tuple[str, ...]


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("Windows per key: this project, Spark's own windows, and Flink SQL.")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    parser.add_argument(
        "--engine", action="append", choices=(US, SPARK, FLINK), help="run only this engine; repeatable"
    )
    parser.add_argument(
        "--work", action="append", metavar="NAME", help="run only works of the peers' part whose names begin with this"
    )
    parser.add_argument(
        "--plot", type=Path, metavar="FILE", help="plot the measurements of the part linear as PNG or SVG"
    )
    parser.add_argument("--keep", action="store_true", help="keep the results in benchmarks/.cache/windows")
    args = parser.parse_args(given)
    sizes = QUICK if args.quick else FULL
    sizes = dataclasses.replace(sizes, runs=args.runs or sizes.runs)
    known = engines()
    wanted = Wanted({name: known[name] for name in args.engine or known}, tuple(args.work or [""]))
    if args.work and not any(case.work.name.startswith(wanted.works) for case in sizes.cases):
        parser.error(f"no work begins with {args.work}; there are " + ", ".join(case.work.name for case in sizes.cases))
    introduce()
    report = Report(US, by_rate=True)
    more: dict[str, Any] = {}
    try:
        for part in args.part or PARTS:
            more[part] = {"peers": peers, "state": state, "linear": linear}[part](sizes, wanted, report)
    finally:
        # Also what was measured before something failed.
        report.show()
        report.write(args.json, more=more)
        if not args.keep:
            shutil.rmtree(_OUT, ignore_errors=True)
    aims(sizes, report)
    if args.plot and more.get("linear"):
        plot_windows(more["linear"]["by_rows"], more["linear"]["by_overlap"], args.plot)


def aims(sizes: Sizes, report: Report) -> None:
    """Print for each aim whether it was met."""
    ratios = {(row["work"], row["engine"]): row["ratio_to_us"] for row in report.rows()}
    say_whether_met(
        [
            (f"{case.work.name}, x {engine}", ratios.get((case.work.name, engine)), aim, True)
            for case in sizes.cases
            for engine, aim in case.aims.items()
        ]
    )


def _sliding_by(slide_s: int) -> Work:
    return Work(f"sliding 10 min by {slide_s} s, latest per key, as windows overlap", 10 * _MINUTE, slide_s, "latest")


def _smaller(size: Size) -> Size:
    """Return a smaller size, with as many rows a key."""
    rows, keys = size
    return rows // _WARM_PART, max(keys // _WARM_PART, 1)


if __name__ == "__main__":
    main()
