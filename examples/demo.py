"""`make demo`: a recorded day of buses at high speed, the live line, the table read by a second engine, and a plot of
staleness.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process, also while it imports

import argparse
import os
import shutil
import sys
import threading
from pathlib import Path

import duckdb
from deltalake import DeltaTable
from rich.console import Console

import upstream as us
from upstream.cli.failures import INTERRUPTED, failure_of, record
from upstream.cli.latest import LatestJob, follow

BUSES = Path(__file__).with_name("data") / "buses.csv.gz"
RECORDED_S = 17 * 3600


def main() -> int:
    """Play, read and plot; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=40, help="play the 17 recorded hours in this many seconds")
    parser.add_argument("--to", type=Path, default=Path("demo-output"))
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)

    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal
    table = asked.to / "latest"
    for old in (table, asked.to / "latest_checkpoint", asked.to / "latest_dead_letters"):
        shutil.rmtree(old, ignore_errors=True)
    asked.to.mkdir(parents=True, exist_ok=True)

    speed = RECORDED_S / asked.seconds
    console.print(
        f"[bold]1.[/bold] Buses of Austin, 24 November 2016, 6:00 to 23:00 UTC, {speed:,.0f} times as fast as it was."
    )
    job = LatestJob(
        source=str(BUSES),
        key=("vehicle_id",),
        time="timestamp",
        table=str(table),
        checkpoint=str((asked.to / "latest_checkpoint").absolute()),
        dead_letters=str((asked.to / "latest_dead_letters").absolute()),
        buckets=4,
        once=False,
        trigger=None,
        target=None,
        metrics=None,
        options={"connector": "replay", "speed": f"{speed:g}"},
        storage={},
        conf={},
        master=None,
    )
    log = asked.to / "spark.log"
    log.unlink(missing_ok=True)
    try:
        code = follow(job, console, log, until=threading.Event())  # the recording ends it
    except Exception as error:  # noqa: BLE001 a sentence, not a trace
        failure = failure_of(error)
        record(failure, log)
        console.print(f"{failure.sentence}\nThe full story is in {log}", style="red", markup=False)
        return failure.code
    if code:
        return code

    console.print("[bold]2.[/bold] The table, read by DuckDB:")
    with duckdb.connect() as engine:
        engine.register("latest", DeltaTable(table).to_pyarrow_dataset())
        columns = "vehicle_id, timestamp, speed, route_id, trip_headsign"
        console.print(str(engine.sql(f"SELECT {columns} FROM latest ORDER BY timestamp DESC LIMIT 5")), markup=False)

    picture = plot(table, asked.to / "staleness.png")
    console.print(f"[bold]3.[/bold] Staleness over time: {picture}")
    command = os.path.relpath(Path(sys.executable).with_name("upstream"))
    console.print(f"Look further: [bold]{command} show {table} --where 'speed > 10'[/bold]")
    return 0


def plot(table: Path, to: Path) -> Path:
    """Draw each commit's staleness, and what was applied and superseded."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    commits = [(each, each.staleness) for _, each in us.LatestTable(table).commits() if each.staleness is not None]
    start = commits[0][0].committed_at_us - commits[0][1].max * 1e6
    seconds = [(each.committed_at_us - start) / 1e6 for each, _ in commits]
    figure, (upper, lower) = plt.subplots(2, sharex=True, figsize=(9, 6), height_ratios=(2, 1))
    upper.plot(seconds, [age.p99 for _, age in commits], ".-", label="p99")
    upper.plot(seconds, [age.p50 for _, age in commits], ".-", label="p50")
    upper.set_ylabel("staleness at commit (s)")
    upper.set_ylim(bottom=0)
    upper.legend()
    upper.set_title("How old the answers were when they became visible; the first batch starts Spark's workers")
    lower.bar(seconds, [each.updates for each, _ in commits], 0.3, color="lightgrey", label="updates that came")
    lower.bar(seconds, [each.applied for each, _ in commits], 0.3, label="rows applied")
    lower.set_ylabel("per commit")
    lower.set_yscale("symlog")
    lower.set_xlabel("seconds since the first row arrived")
    lower.legend()
    figure.tight_layout()
    figure.savefig(to, dpi=120)
    return to


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
