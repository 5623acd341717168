"""What a start costs, in multiples of a plain PySpark session: ``python -m benchmarks.start_up``.

*Bare* is a process that makes a session of ``local[2]`` and counts ten rows. The commands run in turn with it, each in
a process of its own, after a first run of each: the machine's caches and the archive of classes are there. *Processor*
is the time on all cores until the last process has ended; other work on the machine changes it less than *wall*.

The windows are the first and the second of a session: 50,000 rows, one batch, from the query's definition to its end,
by this project and by Spark's own operators. All results are compared with DuckDB's.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from .data import window_feed
from .environments import CACHE
from .harness import arguments, cores, engine_command, environment, fresh, introduce, progress, run, say_whether_met
from .processor_time import wall_and_processor_s
from .window_works import Work, check, holds
from .windows import SPARK, US, engines

__all__ = ["main"]

PARTS = ("commands", "windows")
BARE, SESSION = "bare", "us.session()"
LATEST, SQL = "upstream latest --once", "upstream sql --once"
HELP, WRONG = "upstream --help", "upstream latest, no such column"
_MOST_OF_BARE = {LATEST: 1.3, SQL: 1.6}
_MOST_S = {HELP: 1.5, WRONG: 1.5}
_PLAIN = "from pyspark.sql import SparkSession; SparkSession.builder.master('local[2]').getOrCreate().range(10).count()"
_OURS = "import upstream; upstream.session(master='local[2]').range(10).count()"
_COMMAND = "import sys; sys.argv[0] = 'upstream'; from upstream.cli.main import main; main()"
_ROWS, _KEYS, _FILES = 50_000, 1_000, 8
_WINDOW = Work("tumbling 60 s", 60, 60)
_OUT = CACHE / "start-up"

Aim = tuple[str, float | None, float, bool]


def commands(folder: Path) -> dict[str, tuple[list[str], int]]:
    """Return what each process runs, and the code with which it has to end."""
    feed = folder / "feed.csv"
    feed.write_text("bus,at,speed\n" + "".join(f"{n},2026-01-0{n}T00:00:00Z,{n}\n" for n in (1, 2, 3)))
    python, upstream = [sys.executable, "-c"], [sys.executable, "-c", _COMMAND]
    latest = ["latest", "--from", str(feed), "--event-time", "at", "--to", "TABLE", "--once", "--master", "local[2]"]
    statements = (
        f"CREATE SOURCE buses FROM '{feed}' WITH (key = 'bus', event_time = 'at'); "
        "SELECT COUNT(*) AS n, AVG(speed) AS mean FROM LATEST(buses)"
    )
    return {
        BARE: ([*python, _PLAIN], 0),
        SESSION: ([*python, _OURS], 0),
        LATEST: ([*upstream, *latest, "--key", "bus"], 0),
        SQL: ([*upstream, "sql", statements, "--once", "--master", "local[2]"], 0),
        HELP: ([*upstream, "--help"], 0),
        WRONG: ([*upstream, *latest, "--key", "bike"], 2),
    }


def measure_commands(runs: int) -> list[Aim]:
    """Run all commands in turn; print the medians, and return the aims."""
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        known = commands(Path(folder))
        for number in range(runs + 1):
            for name, (command, expected) in known.items():
                progress(f"{name}, " + (f"run {number} of {runs}" if number else "to warm up"))
                table = str(Path(folder, f"table-{number}"))
                given = [table if each == "TABLE" else each for each in command]
                seconds, processor, code = wall_and_processor_s(given, Path(folder), environment())
                if code != expected:
                    raise SystemExit(f"{name} ended with code {code}, expected {expected}: {given}")
                if number:
                    found.setdefault(name, []).append((seconds, processor))
    walls, processors = (
        {name: statistics.median(each[which] for each in times) for name, times in found.items()} for which in (0, 1)
    )
    print(f"\n{'command':34} {'wall s':>7} {'× bare':>7} {'processor s':>12} {'× bare':>7}")
    for name in found:
        ratios = (walls[name] / walls[BARE], processors[name] / processors[BARE])
        print(f"{name:34} {walls[name]:>7.2f} {ratios[0]:>7.2f} {processors[name]:>12.2f} {ratios[1]:>7.2f}")
    return [
        *(
            (f"{name}, processor, × bare", processors[name] / processors[BARE], most, False)
            for name, most in _MOST_OF_BARE.items()
        ),
        *((f"{name}, s", walls[name], most, False) for name, most in _MOST_S.items()),
    ]


def measure_windows(runs: int) -> list[Aim]:
    """Run two windows in each of some processes; print the medians, and return the aims."""
    found: dict[str, list[Sequence[float]]] = {}
    known = engines()
    data, answer = str(window_feed(_ROWS, _KEYS)), holds(_WINDOW, _ROWS, _KEYS)
    for number in range(runs):
        for name in (US, SPARK):
            progress(f"windows, {name}, run {number + 1} of {runs}")
            outs = [fresh(_OUT, f"{name}-{place}") for place in ("first", "second")]
            more = {"files_per_batch": _FILES, "whole_state": False, "data": data}
            jobs = [{**_WINDOW.job, **more, "out": str(out)} for out in outs]
            once = run(engine_command(known[name].script, {"cores": cores(), "work": jobs}), log=f"start-up-{name}")
            for out in outs:
                check(name, _WINDOW, known[name].result(out, _WINDOW), answer)
            found.setdefault(name, []).append(once.reported["seconds"])
    medians = {name: [statistics.median(each) for each in zip(*times, strict=True)] for name, times in found.items()}
    print(f"\n{'a window over 50,000 rows':34} {'first, s':>9} {'second, s':>10}")
    for name, (first, second) in medians.items():
        print(f"{name:34} {first:>9.2f} {second:>10.2f}")
    first, second = (ours / spark for ours, spark in zip(medians[US], medians[SPARK], strict=True))
    return [("first window, × Spark's", first, 1.0, False), ("second window, × Spark's", second, 0.5, False)]


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("What a start costs, in multiples of a plain PySpark session.")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    args = parser.parse_args(given)
    runs = args.runs or (1 if args.quick else 3)
    introduce()
    parts: dict[str, Callable[[int], list[Aim]]] = {"commands": measure_commands, "windows": measure_windows}
    aims = [aim for part in args.part or PARTS for aim in parts[part](runs)]
    say_whether_met(aims)


if __name__ == "__main__":
    main()
