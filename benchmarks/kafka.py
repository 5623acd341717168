"""A backlog in Kafka to the newest row per key: ``python -m benchmarks.kafka``.

JSON values ``{"key", "ms", "value"}`` in a topic of four partitions, on a broker of this machine; event times rise by 1
ms, 5 % of the rows are up to 5 s early. Each engine reads the whole topic into its latest table, in a process that has
done a smaller backlog before (so that what is measured is not its start), from the query's start to its last commit.
Each result is compared exactly with one that was computed by sorting, before any time is shown. Rows per second and
core: of all cores of the machine, which the broker shares with the engines.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from tools.kafka import Broker

from .data import feed_table, reference
from .environments import CACHE, flink_kafka_jar, spark_kafka_jars
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
from .latest import csv_result, delta_result

__all__ = ["main"]

US = "upstream"
WORK = "backlog in Kafka to the latest table"
PARTITIONS = 4
_OUT = CACHE / "out"


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How much is run: rows and keys of the backlog, rows of the one before it, and how often."""

    rows: int
    keys: int
    warm_rows: int
    runs: int


FULL = Sizes(5_000_000, 100_000, 500_000, 3)
QUICK = Sizes(500_000, 100_000, 100_000, 1)


@dataclasses.dataclass(frozen=True)
class Engine:
    """How an engine is run and its result is read."""

    name: str
    script: str
    job: Callable[[], dict[str, Any]]
    result: Callable[[Path], pa.Table]


def engines() -> list[Engine]:
    """Return all engines; Spark's recipe with the whole backlog in one batch, and in batches of a million."""
    return [
        Engine(US, "kafka_upstream", dict, delta_result),
        Engine("spark recipe (one batch)", "kafka_spark", lambda: _spark(None), delta_result),
        Engine("spark recipe (1,000,000 a batch)", "kafka_spark", lambda: _spark(1_000_000), delta_result),
        Engine("flink mini-batch", "kafka_flink", lambda: {"kafka_jar": str(flink_kafka_jar())}, csv_result),
    ]


def _spark(offsets: int | None) -> dict[str, Any]:
    return {"jars": [str(jar) for jar in spark_kafka_jars()], "offsets": offsets}


def fill(broker: Broker, rows: int, keys: int) -> str:
    """Fill a topic with the feed, each key in one partition, and return its name."""
    from confluent_kafka import Producer

    topic = broker.create(f"feed-{rows}-{keys}", PARTITIONS)
    progress(f"{rows:,} messages into {topic}")
    producer = Producer(
        {"bootstrap.servers": broker.address, "linger.ms": 50, "queue.buffering.max.messages": 500_000, "log_level": 0}
    )
    table = feed_table(rows, keys)
    columns = (table[name].to_pylist() for name in ("key", "ms", "value"))
    for number, (key, ms, value) in enumerate(zip(*columns, strict=True)):
        if number % 100_000 == 0:
            producer.flush(60)
        text = f'{{"key":{key},"ms":{ms},"value":{value!r}}}'
        producer.produce(topic, text, key=str(key), partition=key % PARTITIONS)
    if producer.flush(60):
        raise SystemExit("the broker did not take all messages")
    return topic


def measure(engine: Engine, broker: Broker, topics: Sequence[str]) -> tuple[Run, Path]:
    """Run an engine in a process of its own over some topics; the run, and where the last result is."""
    label = f"kafka-{labelled(engine.name)}"
    outs = [fresh(_OUT, f"{label}-{number}") for number in range(len(topics))]
    work = [{"topic": topic, "out": str(out)} for topic, out in zip(topics, outs, strict=True)]
    job = {**engine.job(), "cores": cores(), "servers": broker.address, "work": work}
    return run(engine_command(engine.script, job), log=label), outs[-1]


def main(given: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = arguments("A backlog in Kafka to the newest row per key: this project, Spark's usual recipe, Flink.")
    parser.add_argument(
        "--engine", action="append", metavar="NAME", help="run only engines whose names begin with this"
    )
    parser.add_argument("--rows", type=whole_number, help="use this many messages, such as 5M")
    parser.add_argument("--keys", type=whole_number, help="use this many keys")
    args = parser.parse_args(given)
    changes = {"rows": args.rows, "keys": args.keys, "runs": args.runs}
    sizes = dataclasses.replace(
        QUICK if args.quick else FULL, **{name: value for name, value in changes.items() if value}
    )
    introduce()
    report = Report(US)
    expected = reference(sizes.rows, sizes.keys)
    wanted = args.engine or [""]
    folder = CACHE / "kafka-broker"
    shutil.rmtree(folder, ignore_errors=True)
    try:
        with Broker(folder, heap="1g") as broker:
            topics = [fill(broker, rows, sizes.keys) for rows in (sizes.warm_rows, sizes.rows)]
            for engine in engines():
                if not any(engine.name.startswith(prefix) for prefix in wanted):
                    continue
                for number in range(sizes.runs):
                    progress(f"{engine.name}, run {number + 1} of {sizes.runs}")
                    once, out = measure(engine, broker, topics)
                    assert_equal(engine.name, engine.result(out), expected)
                    seconds = [once.reported["seconds"][-1]]
                    report.add(Measured(WORK, engine.name, sizes.rows, seconds, once.peak_mb))
    finally:
        # Also what was measured before something failed.
        report.show()
        report.write(args.json, sizes=dataclasses.asdict(sizes))
        for each in (_OUT, folder):
            shutil.rmtree(each, ignore_errors=True)
    aims(report)


def aims(report: Report) -> None:
    """Print rows per second and core, and whether the aim was met: against the better of Spark's batch sizes."""
    print("\nrows per second and core")
    for row in report.rows():
        print(f"  {row['engine']:34} {row['rows_per_second'] / cores():>11,.0f}")
    ratios = [row["ratio_to_us"] for row in report.rows() if row["engine"].startswith("spark recipe")]
    say_whether_met([("backlog, x Spark recipe", min(ratios, default=None), 3.0, True)])


if __name__ == "__main__":
    main()
