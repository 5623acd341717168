"""Whether a queue stays as it is for an hour of five times too much: state, memory, batches and staleness, minute by
minute.

``python -m benchmarks.soak``: the in-place engine of ``benchmarks.overload``, with the same feed and map.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.reports import QueueReport, read_reports
from upstream.sink.figures.summary import read_summaries

from .environments import CACHE
from .harness import arguments, environment, machine
from .memory import PeakMemory
from .overload import Setting, capacity_of, job_command, job_of

# What may not grow, as printed and as a column of the JSON.
_FLAT = ("peak_mb", "checkpoint_mb", "slots", "batch_s", "staleness_s")


def main() -> None:
    """Run, print a line a minute, say whether it is flat."""
    parser = arguments(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--engine", default="in-place")
    parser.add_argument("--load", type=float, default=5.0)
    parser.add_argument("--capacity", type=float, help="set the map's rows/s [default: measure it]")
    given = parser.parse_args()
    minutes = 4.0 if given.quick else given.minutes
    print(json.dumps(machine()))
    capacity = capacity_of(given.capacity)
    print(f"{given.engine} at {given.load:g} x {capacity:,.0f} rows/s for {minutes:g} minutes")
    rows = soak(given, minutes, capacity)
    if given.json:
        given.json.write_text(json.dumps({"machine": machine(), "capacity": capacity, "rows": rows}, indent=1))
    verdict(rows)


def soak(given: argparse.Namespace, minutes: float, capacity: float) -> list[dict[str, Any]]:
    """Run an engine and print one line a minute; raise an error if the engine fails."""
    home = CACHE / "soak"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    job = job_of(given.engine, Setting(given.load, 0.5), capacity, home, minutes * 60)
    rows: list[dict[str, Any]] = []
    print("  minute  waiting   slots  peak MB  checkpoint MB  batch s  staleness s  commits")
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            job_command(job), stdout=log, stderr=log, env=environment(), start_new_session=True, cwd=CACHE
        )
        seen = -1
        with PeakMemory(process.pid) as memory:
            while process.poll() is None:
                time.sleep(60)
                row, seen = look(home, seen)
                rows.append({"minute": len(rows) + 1, **row, "peak_mb": round(memory.since_asked_mb())})
                each = rows[-1]
                print(
                    f"  {each['minute']:6d} {each['waiting']:8,d} {each['slots']:7,d} {each['peak_mb']:8,d} "
                    f"{each['checkpoint_mb']:14.1f} {each['batch_s']:8.2f} {each['staleness_s']:12.2f} "
                    f"{each['commits']:8d}",
                    flush=True,
                )
    if process.returncode:
        end = "\n".join((home / "log").read_text(errors="replace").splitlines()[-15:])
        raise SystemExit(f"the engine failed with code {process.returncode}:\n{end}")
    return rows


def look(home: Path, seen: int) -> tuple[dict[str, Any], int]:
    """Return the figures of the last minute, and the last version of the table."""
    reports = read_reports(queue_folder(str(home / "checkpoint")), QueueReport)
    commits = read_summaries(str(home / "table"), seen) if (home / "table").exists() else []
    times = [summary.committed_at_us / 1e6 for _, summary in commits]
    ages = [summary.staleness.mean for _, summary in commits if summary.staleness is not None]
    files = [path for path in (home / "checkpoint").rglob("*") if path.is_file()]
    sizes = []
    for path in files:
        try:
            sizes.append(path.stat().st_size)
        except FileNotFoundError:  # Spark has removed it meanwhile
            continue
    row = {
        "waiting": sum(report.waiting for report in reports),
        "slots": sum(report.allocated for report in reports),
        "checkpoint_mb": sum(sizes) / 2**20,
        "batch_s": (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else 0.0,
        "staleness_s": statistics.fmean(ages) if ages else 0.0,
        "commits": len(commits),
    }
    return row, commits[-1][0] if commits else seen


def verdict(rows: list[dict[str, Any]]) -> None:
    """Compare the last quarter with the second: the first warms up."""
    quarter = len(rows) // 4
    if not quarter:
        return
    print("\nlast quarter / second quarter")
    for name in _FLAT:
        early = statistics.fmean(row[name] for row in rows[quarter : 2 * quarter])
        late = statistics.fmean(row[name] for row in rows[-quarter:])
        ratio = late / early if early else 1.0
        print(f"  {'flat ' if ratio <= 1.1 else 'GROWS'} {name}: {ratio:.3f}")


if __name__ == "__main__":
    main()
