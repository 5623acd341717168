"""A busy and a silent feed, put into the order of time on Spark: ``python -m benchmarks.silent_feed``.

The comparison of Bai et al. (§6, Figures 7 and 8) with the real source, operator and table: 50 rows a second in one
folder, one every 20 s in another, real time. Rows go on once the low-watermark has come to them. How long that takes,
from a row's arrival to its commit, depends on what is done about the silent feed: nothing, punctuation that it sends
itself at some rate, following the others after a time, on-demand timestamps, or rows that need no order (latent), which
is the least there can be.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import upstream
from upstream.core.feedback.checkpoint_layout import operator_folder
from upstream.core.feedback.reports import ReorderReport, read_reports

from .environments import CACHE
from .harness import arguments, cores, fresh, introduce, progress

__all__ = ["main"]

BUSY, SPARSE = 50.0, 0.05
"""Rows per second (§6)."""
_WRITE_S = 0.1  # a busy feed's rows come in a file each so many seconds
_WARM_S = 8.0  # a query's first batches start its workers


@dataclasses.dataclass(frozen=True)
class Way:
    """What is done about a silent feed.

    Attributes
    ----------
    name : str
    options : dict
        Of the source.
    punctuation_s : float or None
        How often the silent feed says how far it is; None if it does not.
    ordered : bool
        Whether rows wait for their turn.
    """

    name: str
    options: dict[str, str]
    punctuation_s: float | None = None
    ordered: bool = True


_ORDERED = {"watermark": "ordered", "confirmations": "1"}
_EMBEDDED = {"watermark": "embedded", "confirmations": "1"}
WAYS = (
    Way("no timestamps (idle=wait)", _ORDERED),
    Way("punctuation each 5 s", _EMBEDDED, 5.0),
    Way("punctuation each second", _EMBEDDED, 1.0),
    Way("idle=advance after 5 s", {**_ORDERED, "idle": "advance", "idleAfter": "5 seconds"}),
    Way("idle=advance after 1 s", {**_ORDERED, "idle": "advance", "idleAfter": "1 second"}),
    Way("on demand (idle=ets)", {**_ORDERED, "idle": "ets", "etsDelay": "200 ms"}),
    Way("none", {"watermark": "none"}, ordered=False),
)


@dataclasses.dataclass(frozen=True)
class FeedOutcome:
    """Of one run.

    Attributes
    ----------
    mean_s, most_s : float
        From a row's arrival to its commit; of rows that have not been committed when the run ends, to its end.
    held : int
        The most rows that waited in the operator.
    late : int
        Rows that came below what had been promised.
    committed, sent : int
        Rows.
    """

    mean_s: float
    most_s: float
    held: int
    late: int
    committed: int
    sent: int


class Sender(threading.Thread):
    """Writes both feeds until it is told to end."""

    def __init__(self, home: Path, way: Way) -> None:
        super().__init__(daemon=True)
        self._home, self._way, self._end = home, way, threading.Event()
        self.sent: list[tuple[int, float]] = []
        for feed in ("busy", "silent"):
            (home / feed).mkdir(parents=True)

    def run(self) -> None:
        """Write rows by the clock; each feed begins with one."""
        began = time.time()
        punctuated = spoke = 0.0
        rows = 0
        while not self._end.wait(_WRITE_S):
            at = time.time() - began
            new = round(at * BUSY) - rows
            rows += new
            embedded = self._way.options["progress"] == "embedded"
            self._file("busy", new, punctuation=embedded)
            if not spoke or at - spoke >= 1 / SPARSE:
                spoke = at or _WRITE_S
                self._file("silent", 1, punctuation=embedded)
            elif self._way.punctuation_s is not None and at - punctuated >= self._way.punctuation_s:
                punctuated = at
                self._file("silent", 0, punctuation=True)

    def stop(self) -> None:
        """End, and wait for the end."""
        self._end.set()
        self.join()

    def _file(self, feed: str, rows: int, *, punctuation: bool) -> None:
        now = time.time()
        keys = range(len(self.sent), len(self.sent) + rows)
        lines = [f"{key},{round(now * 1000)}" for key in keys] + [f",{round(now * 1000)}"] * punctuation
        made = self._home / f"{feed}-{time.time_ns()}"
        made.write_text("".join(f"{line}\n" for line in ["key,ms", *lines]))
        self.sent += [(key, now) for key in keys]
        made.rename(self._home / feed / f"{made.name}.csv")


def measure(spark: Any, way: Way, home: Path, seconds: float) -> FeedOutcome:
    """Run one way for some seconds of real time."""
    sender = Sender(home, way)
    checkpoint = str(home / "checkpoint")
    sender.start()
    options = {
        "paths": json.dumps([str(home / "busy"), str(home / "silent")]),
        "key": "key",
        "eventTime": "ms",
        "timeFormat": "epoch_ms",
        "lastLine": "complete",
        "checkpointLocation": checkpoint,
        **way.options,
    }
    ddl = upstream.with_system_ddl("key BIGINT, ms BIGINT")
    stream = upstream.UpdateStream(
        spark.readStream.format("upstream").schema(ddl).options(**options).load(), key="key", event_time="ms"
    )
    if way.ordered:
        stream = stream.ordered(shards=2)
    writer = upstream.write_latest(stream, home / "table", checkpoint=checkpoint, buckets=1)
    query = writer.trigger(processingTime="0 seconds").start()
    held, began = 0, time.time()
    while time.time() - began < _WARM_S + seconds and query.isActive:
        time.sleep(0.05)
        if time.time() - began > _WARM_S:
            held = max(
                held, sum(report.held for report in read_reports(operator_folder(checkpoint, "reorder"), ReorderReport))
            )
    error = query.exception()
    if error is not None:
        raise error
    ended = time.time()
    committed = commits(home / "table")
    sender.stop()
    query.stop()
    # Only what came once the query was running.
    sent = [(key, at) for key, at in sender.sent if began + _WARM_S <= at <= ended]
    waited = np.array([committed.get(key, ended) - at for key, at in sent])
    late = sum(report.late for report in read_reports(operator_folder(checkpoint, "reorder"), ReorderReport))
    got = sum(key in committed for key, _ in sent)
    return FeedOutcome(float(waited.mean()), float(waited.max()), held, late, got, len(sent))


def commits(table: Path) -> dict[int, float]:
    """Return when each key was committed, from the table's log: no key comes twice."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    from upstream.delta_format.latest_table import CommitChanges

    found: dict[int, float] = {}
    for entry in DeltaTable(table).history():
        applied = CommitChanges.of_commit(entry)
        for path, rows in () if applied is None else applied.rows.items():
            keys = pq.read_table(table / path, columns=["key"]).column("key").to_pylist()
            assert applied is not None
            found.update(dict.fromkeys(keys[len(keys) - rows :], applied.committed_at_us / 1e6))
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("A busy and a silent feed in the order of time on Spark, by what is done about the silent one.")
    parser.add_argument("--seconds", type=float, help="run each for this many seconds [default: 40, with --quick 12]")
    args = parser.parse_args(given)
    seconds = args.seconds or (12.0 if args.quick else 40.0)
    introduce()
    spark = upstream.session("benchmark", master=f"local[{cores()}]")
    outcomes: dict[str, FeedOutcome] = {}
    for way in WAYS:
        progress(way.name)
        outcomes[way.name] = measure(spark, way, fresh(CACHE / "out", f"silent-{len(outcomes)}"), seconds)
    spark.stop()
    show(outcomes)
    if args.json is not None:
        values = {name: dataclasses.asdict(outcome) for name, outcome in outcomes.items()}
        Path(args.json).write_text(json.dumps({"seconds": seconds, "outcomes": values}, indent=1) + os.linesep)


def show(outcomes: dict[str, FeedOutcome]) -> None:
    """Print the outcomes as a table."""
    print(f"\n{'':28} {'mean':>8} {'most':>8} {'held':>6} {'late':>5} {'committed':>12}")
    for name, each in outcomes.items():
        print(
            f"{name:28} {each.mean_s:>6.2f} s {each.most_s:>6.1f} s {each.held:>6} {each.late:>5} {each.committed:>6} "
            f"of {each.sent}"
        )


if __name__ == "__main__":
    main()
