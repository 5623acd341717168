"""`make demo-kafka`: a broker, a producer with one partition 30 s behind and one that falls silent, and the latest
table over all of them.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C ends the process, also while it imports

import argparse
import json
import os
import random
import shutil
import sys
import threading
import time
from pathlib import Path

import duckdb
from confluent_kafka import Producer
from deltalake import DeltaTable
from rich.console import Console

import upstream as us
from upstream.cli.failures import INTERRUPTED, failure_of, record
from upstream.cli.latest import LatestJob, follow

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tools.kafka import Broker

TOPIC = "vehicles"
PARTITIONS = ("on time", "30 s behind", "silent from its tenth second on")
ROWS_PER_SECOND = 2000
BEHIND_S = 30
SPEAKS_S = 10


def main() -> int:
    """Start all, follow for a while, look at the table; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="follow the table for this many seconds")
    parser.add_argument("--to", type=Path, default=Path("demo-output"))
    parser.add_argument(
        "-o",
        "--option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set an option of the source; repeatable",
    )
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console(highlight=False)
    console.soft_wrap = not console.is_terminal
    folder = asked.to.absolute() / "kafka"
    shutil.rmtree(folder, ignore_errors=True)
    console.print("[bold]1.[/bold] A Kafka broker starts (the first time its 38 MB of jars are fetched).")
    with Broker(folder / "broker") as broker:
        broker.create(TOPIC, len(PARTITIONS))
        partitions = ", ".join(f"{TOPIC}/{number} {says}" for number, says in enumerate(PARTITIONS))
        console.print(f"[bold]2.[/bold] A producer sends {ROWS_PER_SECOND:,} rows/s to {broker.address}: {partitions}.")
        ended = threading.Event()
        threads = [
            threading.Thread(target=produce, args=(broker.address, ended)),
            threading.Thread(target=say_feeds, args=(folder / "latest", console, ended)),
            threading.Thread(target=end_after, args=(folder / "latest", asked.seconds, ended)),
        ]
        for thread in threads:
            thread.start()
        options = {
            "connector": "kafka",
            "kafka.bootstrap.servers": broker.address,
            "subscribe": TOPIC,
            "schema": "vehicle STRING, at TIMESTAMP, speed DOUBLE",
            "watermarkDelay": "1 second",
            **dict(each.split("=", 1) for each in asked.option),
        }
        try:
            code = follow(job(folder, options), console, folder / "spark.log", ended)
        except Exception as error:  # noqa: BLE001 a sentence, not a trace
            failure = failure_of(error)
            record(failure, folder / "spark.log")
            console.print(f"{failure.sentence}\nThe full story is in {folder / 'spark.log'}", style="red", markup=False)
            code = failure.code
        finally:
            ended.set()
            for thread in threads:
                thread.join()
    if code:
        return code
    console.print("[bold]3.[/bold] The table, read by DuckDB: how old the newest row of each partition's vehicles is.")
    with duckdb.connect() as engine:
        engine.register("latest", DeltaTable(folder / "latest").to_pyarrow_dataset())
        newest = engine.sql(
            "SELECT left(vehicle, 1) AS part, count(*) AS vehicles, "
            'max("at") AS newest FROM latest GROUP BY 1 ORDER BY 1'
        )
        console.print(str(newest), markup=False)
    console.print("The broker has been stopped; what it held is in " + os.path.relpath(folder / "broker"))
    return 0


def job(folder: Path, options: dict[str, str]) -> LatestJob:
    """Return the job that `upstream latest` would run."""
    return LatestJob(
        source=None,
        key=("vehicle",),
        time="at",
        table=str(folder / "latest"),
        checkpoint=str(folder / "latest_checkpoint"),
        dead_letters=str(folder / "latest_dead_letters"),
        buckets=4,
        once=False,
        trigger=None,
        target=None,
        metrics=None,
        options=options,
        storage={},
        conf={},
        master=None,
    )


def produce(address: str, ended: threading.Event) -> None:
    """Send rows of 500 vehicles a partition, with times as the partition's clock has them."""
    producer = Producer({"bootstrap.servers": address, "linger.ms": 20, "log_level": 0})
    chance = random.Random(1)
    began = time.time()
    while not ended.wait(0.1):
        now = time.time()
        for partition in range(len(PARTITIONS)):
            if partition == 2 and now - began > SPEAKS_S:
                continue
            for _ in range(ROWS_PER_SECOND // 10 // len(PARTITIONS)):
                at = now - chance.random() / 2 - (BEHIND_S if partition == 1 else 0)
                stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
                vehicle = f"{partition}-{chance.randrange(500):03d}"
                row = {"vehicle": vehicle, "at": stamp, "speed": round(chance.uniform(0, 30), 1)}
                producer.produce(TOPIC, json.dumps(row), key=vehicle, partition=partition)
        producer.poll(0)
    producer.flush(5)


def say_feeds(table: Path, console: Console, ended: threading.Event) -> None:
    """Print a line for each feed every few seconds: the time up to which it is complete."""
    while not ended.wait(10):
        if not (table / "_delta_log").exists():
            continue
        summaries = us.LatestTable(table).commits()
        if summaries:
            for feed, bound in sorted(summaries[-1][1].low_watermarks.items()):
                says = PARTITIONS[int(feed.rpartition("/")[2])]
                console.print(f"   {feed} ({says}): complete to {bound}", style="dim", markup=False)


def end_after(table: Path, seconds: float, ended: threading.Event) -> None:
    """End all, so many seconds after the first commit."""
    while not (table / "_delta_log").exists():
        if ended.wait(0.2):
            return
    ended.wait(seconds)
    ended.set()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
