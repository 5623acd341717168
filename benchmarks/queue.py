"""The update queue: its speed, its fixed cost, its limits: ``python -m benchmarks.queue``.

*pure* is the queue alone: 100,000 rows into a million pending keys, 10,000 out; beside it a dictionary and a heap, row
by row, whose answer has to be the same. *shard* is `pack` and 16 shards with their state in memory: a large batch, and
what a small one costs. Both are seconds of processor time of one thread, and so are fairly free of what else the
machine does. *spark* is the same in a streaming query without a table, beside Spark's own newest row per key. *pending*
is 10 M pending keys, shard by shard in a process each. *order* is how near service is to the globally oldest first.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from .environments import CACHE
from .harness import Measured, Report, arguments, cores, engine_command, machine, run
from .memory import peak_mb
from .queue_in_process import SHARDS, disordered, fixed_cost, order, queue_alone, queue_row_by_row, throughput

__all__ = ["main"]

US = "upstream"
PARTS = ("pure", "shard", "spark", "pending", "order")
POLICIES = ("append", "shed", "fifo", "in-place", "linecutting", "auto")
# Those that a few lines of Python can be compared with.
PLAIN = ("append", "fifo", "in-place")
# Of this process alone: another run does not clear it away.
_OUT = CACHE / f"queue-{os.getpid()}"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run.

    Attributes
    ----------
    pending, rows, served : int
        Of the queue alone: keys that wait, rows that come, rows that are served.
    batch_rows, batch_keys : int
        Of a large batch, through shards and through Spark.
    batches : int
        Small batches measured.
    many : int
        Pending keys of the part of that name.
    runs : int
        How often each is run.
    """

    pending: int
    rows: int
    served: int
    batch_rows: int
    batch_keys: int
    batches: int
    many: int
    runs: int


FULL = Sizes(1_000_000, 100_000, 10_000, 2_000_000, 100_000, 20, 10_000_000, 3)
QUICK = Sizes(100_000, 10_000, 1_000, 200_000, 20_000, 5, 200_000, 1)


def pure(sizes: Sizes, report: Report) -> dict[str, Any]:
    """Measure the queue alone, with each policy."""
    size = (sizes.pending, sizes.rows, sizes.served)
    for policy in POLICIES:
        for _ in range(sizes.runs):
            work = f"queue alone, {policy}: {sizes.rows:,} rows into {sizes.pending:,} keys, {sizes.served:,} out"
            seconds, served = queue_alone(policy, *size)
            report.add(Measured(work, US, sizes.rows, [seconds], peak_mb()))
            if policy in PLAIN:
                seconds, expected = queue_row_by_row(policy, *size)
                if served != expected:
                    raise SystemExit(f"{policy}: other rows are served than by a queue row by row")
                report.add(Measured(work, "dictionary and heap, row by row", sizes.rows, [seconds], peak_mb()))
    return {}


def shard(sizes: Sizes, report: Report) -> dict[str, Any]:
    """Measure pack and all shards in one process."""
    found: dict[str, Any] = {}
    for policy in ("in-place", "linecutting", "append"):
        seconds = throughput(policy, sizes.batch_rows, sizes.batch_keys, sizes.served, sizes.runs)
        work = f"pack and {SHARDS} shards, {policy}, {sizes.batch_keys:,} keys"
        report.add(Measured(work, US, sizes.batch_rows, seconds, peak_mb()))
    for policy in ("auto", "in-place"):
        for behind in (0.0, 0.05):
            rows, keys = sizes.batch_rows // 10, sizes.batch_keys
            seconds, superseded = disordered(policy, rows, keys, rows, behind, sizes.runs)
            work = f"pack and {SHARDS} shards, {policy}, a watermark, {behind:.0%} of the rows behind, {keys:,} keys"
            report.add(Measured(work, US, rows, seconds, peak_mb()))
            found[work] = {"superseded": superseded}
    for pending, rows in ((SHARDS * 1_000, SHARDS * 500), (sizes.batch_keys, 1_000)):
        fixed = fixed_cost("in-place", pending, rows, sizes.batches)
        work = f"small batch, {SHARDS} shards, in-place, {pending:,} keys pending"
        report.add(Measured(work, US, rows, fixed.seconds, peak_mb()))
        each = statistics.median(fixed.seconds) / SHARDS
        print(
            f"{work}: {rows:,} rows, {each * 1e3:.2f} ms of processor time a shard, {fixed.state_bytes:,} bytes of "
            "state written"
        )
        found[work] = {"ms_per_shard": each * 1e3, "state_bytes": fixed.state_bytes, "pending": fixed.pending}
    return found


def spark(sizes: Sizes, report: Report) -> dict[str, Any]:
    """Measure a query with a queue, and one with Spark's own aggregate."""
    job = {
        "cores": cores(),
        "keys": sizes.batch_keys,
        "small_rows": 1_000,
        "large_rows": sizes.batch_rows,
        "small": sizes.batches,
        "large": 3,
        "budget": sizes.served,
        "out": str(_OUT / "spark"),
    }
    for engine in ("in-place", "linecutting", "max_by"):
        command = engine_command("queue_spark", {**job, "engine": engine})
        done = run(command, log=f"queue-spark-{engine}")
        name = "spark groupBy, max_by" if engine == "max_by" else f"{US}, {engine}" if engine != "in-place" else US
        for kind, rows in (("large", sizes.batch_rows), ("small", 1_000)):
            work = f"{kind} batch in a streaming query, to nowhere, {sizes.batch_keys:,} keys"
            report.add(Measured(work, name, rows, done.reported[kind], done.peak_mb))
    return {}


def pending(sizes: Sizes, report: Report) -> dict[str, Any]:
    """Measure a queue of very many pending keys."""
    found: dict[str, Any] = {}
    # Text is measured on two shards only: shards are alike.
    for kind, shards in (("BIGINT", SHARDS), ("STRING", 2)):
        job = {"policy": "in-place", "keys": sizes.many // SHARDS, "text": kind == "STRING", "batches": 5}
        job |= {"rows": 10_000 // SHARDS, "budget": 10_000 // SHARDS}
        served: list[dict[str, float]] = []
        filled, peak, stored = 0.0, 0.0, 0
        for number in range(shards):
            shard_job = {**job, "shard": number, "out": str(_OUT / f"shard-{number}")}
            fill, serve = (_pending({**shard_job, "do": do}) for do in ("fill", "serve"))
            filled += sum(batch["cpu"] for batch in fill["batches"])
            peak = max(peak, serve["peak_mb"])
            served += serve["batches"][1:]  # the first imports what a task has imported
            stored += sum(file.stat().st_size for file in (_OUT / f"shard-{number}").iterdir())
            shutil.rmtree(_OUT / f"shard-{number}")
        mean = {name: statistics.fmean(batch[name] for batch in served) for name in served[0]}
        work = f"{sizes.many:,} {kind} keys pending in {SHARDS} shards, in-place"
        report.add(Measured(f"{work}, filled", US, sizes.many, [filled * SHARDS / shards], peak))
        seconds = [batch["cpu"] * SHARDS for batch in served]
        report.add(Measured(f"{work}, 10,000 come and 10,000 are served", US, 10_000, seconds, peak))
        found[work] = {**mean, "peak_mb": peak, "stored_bytes": stored * SHARDS // shards}
        print(
            f"{work}: state {stored * SHARDS / shards / 1e6:,.0f} MB. A batch costs each shard {mean['cpu'] * 1e3:.0f} "
            "ms of processor "
            f"time, {mean['row_pages_read']:.1f} pages of rows read and {mean['row_pages_written']:.1f} written, "
            f"{mean['bytes_read'] / 1e6:.1f} MB read, {mean['bytes_written'] / 1e6:.2f} MB written, "
            f"{mean['calls']:.0f} calls, "
            f"{peak:.0f} MB of memory at most"
        )
    return found


def _pending(job: dict[str, Any]) -> Any:
    command = engine_command("queue_pending", job)
    return run(command, log=f"queue-pending-{job['do']}").reported


def orders(sizes: Sizes, report: Report) -> dict[str, Any]:
    """Measure how close the order of service is to the globally oldest first."""
    del report
    found: dict[str, Any] = {}
    keys, rows, batches = 20_000, 4_000, 20 * sizes.runs
    print(
        f"\norder across {SHARDS} shards, {keys:,} keys, {rows:,} rows and {rows // 4:,} served a batch of one second"
    )
    print("   skew   served  not among the oldest  newer by, ms (mean, most)  queue spans, ms")
    for skew in (0.0, 0.5, 0.99):
        each = order(skew, keys, rows, rows // 4, batches)
        print(
            f"   {skew:4g} {each.served:8,} {each.wrong_share:21.2%} {each.late_ms_mean:15.1f} {each.late_ms_max:9.1f} "
            f"{each.queue_ms:16,.0f}"
        )
        found[f"skew {skew:g}"] = dataclasses.asdict(each)
    return found


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("The update queue: speed, fixed cost, ten million pending keys, order across shards.")
    parser.add_argument("--part", action="append", choices=PARTS, help="run only this part; repeatable")
    args = parser.parse_args(given)
    sizes = QUICK if args.quick else FULL
    sizes = dataclasses.replace(sizes, runs=args.runs or sizes.runs)
    pa.set_cpu_count(1)
    facts = machine()
    print(f"{facts['cores']} cores, {facts['memory_gb']} GB")
    report, more = Report(US), {}
    work = {"pure": pure, "shard": shard, "spark": spark, "pending": pending, "order": orders}
    try:
        for part in args.part or PARTS:
            print(f"… {part}", file=sys.stderr, flush=True)
            more[part] = work[part](sizes, report)
    finally:
        report.show()
        report.write(args.json, sizes=dataclasses.asdict(sizes), more=more)
        shutil.rmtree(_OUT, ignore_errors=True)


if __name__ == "__main__":
    main()
