"""Tables with a history, in each state that a query can be in, written without Spark: for tests of the workbench and
for its pictures.
"""

import base64
import dataclasses
import json
import os
import time
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
from deltalake import DeltaTable

from upstream.conf.process_identity import Process
from upstream.conf.units import now_us
from upstream.core.feedback.ages import Ages
from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.control import ControlReader, ControlRecord
from upstream.core.feedback.reports import QueueReport, ServiceReport, write_report
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import TIMESTAMP
from upstream.delta_format.append_table import DeadLetterWriter, letters_of
from upstream.hosting.host_lease import CheckpointLease
from upstream.hosting.messages import Command, offset_of
from upstream.hosting.registry import registry_at
from upstream.hosting.reports import HostTimes, QueryReport
from upstream.sink.commit.lease import TableLease
from upstream.storage.folder import TableFolder

from .continuous import BUSES
from .hosting import scanned
from .local_host import LocalHost
from .registries import FAST, begun, planned, register, report
from .sink import Sink

COLUMNS = pa.schema(
    [
        ("vehicle_id", pa.int64()),
        ("route_id", pa.int32()),
        ("speed", pa.float64()),
        ("timestamp", pa.timestamp("us", "UTC")),
    ]
)
OPTIONS = {"key": "vehicle_id", "eventTime": "timestamp", "buckets": "4"}
SECOND = 1_000_000
LEASE_S = 3600  # longer than the tests that look at a scene, on a busy machine too


@dataclasses.dataclass
class Scene(Sink):
    """A query that reads input partitions of buses; each :meth:`step` is a batch, a second after the last one."""

    columns: pa.Schema = COLUMNS
    options: dict[str, str] = dataclasses.field(default_factory=lambda: {**OPTIONS, "target": "p99 < 10 s"})
    name: str = "positions"
    feeds: tuple[str, ...] = ("feed/vehicles/0.csv", "feed/vehicles/1.csv", "feed/vehicles/2.csv")
    silent: tuple[str, ...] = ()  # input partitions without a row since batch `silent_from`
    silent_from: int = 0
    keys: int = 500
    rows_per_batch: int = 120
    age_s: float = 0.8
    waiting: int = 0  # keys in a queue, which serves each row once; 0 for none
    stalest_keys: int = 0  # those of each shard that the queue reports
    batches: int = 0
    seed: int = 7

    @property
    def path(self) -> Path:
        return self.folder / self.name

    @property
    def checkpoint(self) -> Path:
        return self.folder / f"{self.name}_checkpoint"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = np.random.default_rng(self.seed)
        self.now_us = now_us()
        self.heard = dict.fromkeys(self.feeds, self.now_us)
        self.bounds = dict.fromkeys(self.feeds, self.now_us)
        self.received = dict.fromkeys(self.feeds, 0)
        self.controls = ControlReader(TableFolder(str(self.checkpoint)))
        self.control: ControlRecord | None = None

    def history(self, batches: int, every_s: float = 1.0) -> "Scene":
        """Make so many batches that end now."""
        end = now_us()
        for number in range(batches):
            self.now_us = end - int((batches - 1 - number) * every_s * SECOND)
            self.step()
        return self

    def step(self) -> None:
        """Make the batch of this moment."""
        batch, each = self.batches, max(self.rows_per_batch // len(self.feeds), 1)
        parts = []
        for number, feed in enumerate(self.feeds):
            if feed not in self.silent or batch < self.silent_from:
                key = np.minimum(self.random.zipf(1.3, each), self.keys)
                if self.waiting:
                    key = self.random.choice(self.keys, each, replace=False)
                age_s = self.random.gamma(2.0, self.age_s / 2, each)
                arrived = self.now_us - (age_s * SECOND).astype(np.int64)
                at = arrived - number * SECOND // 3
                times = at.tolist()
                rows = list(zip(key.tolist(), (key % 9).tolist(), (key % 23 * 0.7).tolist(), times, strict=True))
                parts.append(self.rows(rows, seq=batch * 10_000 + number * 1_000, feed=feed, arrival_us=arrived))
                self.heard[feed] = self.now_us
                self.bounds[feed] = self.now_us - 2 * SECOND - number * SECOND // 3
                self.received[feed] += each
            parts.append(self.punctuation(self.bounds[feed], feed))
        self._journal(batch)
        if self.waiting:
            self._report(batch)
        self.batch(batch, parts)
        self.batches += 1

    def hold(self, *, gone: bool = False, now: int | None = None, lease_s: int = 60) -> "Scene":
        """Take the lease for this process, or for one that has ended."""
        process = Process.of(os.getpid())
        holder = dataclasses.replace(process, started=1, pid=4711) if gone else process
        TableLease(TableFolder(str(self.path))).hold(self.query_id, holder, lease_s * SECOND, now or now_us())
        return self

    def end(self) -> "Scene":
        """Release the lease, and let a last batch end all input partitions."""
        TableLease(TableFolder(str(self.path))).release()
        return self

    def dead_letters(self, count: int) -> "Scene":
        writer = DeadLetterWriter(TableFolder(f"{self.path}_dead_letters"), self.query_id, 0)
        rows = pa.table(
            {
                "vehicle_id": [f"bus {n}" for n in range(count)],
                "timestamp": ["yesterday"] * count,
                "speed": ["fast"] * count,
            }
        )
        reasons = pa.array(["late" if n % 3 else "the time is not a timestamp" for n in range(count)])
        writer.write(letters_of(rows, batch=self.batches, origin="feed/vehicles/1.csv:line 17", reason=reasons))
        writer.commit()
        return self

    def _journal(self, batch: int) -> None:
        states = {
            feed: {
                "bound": self.bounds[feed],
                "own": self.bounds[feed],
                "late": 0,
                "late_idle": 0,
                "suspects": 0,
                "received": self.received[feed],
            }
            for feed in self.feeds
        }
        offset = {
            "id": "scene",
            "connector": "files",
            "batch": batch,
            "version": 1,
            "looked": True,
            "progress": states,
            "heard": self.heard,
            "ended": [],
            "punctuation": {},
            "limits": {},
            "now_us": self.now_us - 700_000,
        }
        self.control = self.controls.record("source/scene", self.control, self.now_us)
        offset |= {} if self.control is None else {"control": self.control}
        head = json.dumps({"batchTimestampMs": (self.now_us - 560_000) // 1000})
        place = self.checkpoint / "offsets"
        place.mkdir(exist_ok=True)
        written = place / f".{batch}.tmp"
        written.write_text("\n".join(["v1", head, json.dumps(offset)]))
        written.rename(place / str(batch))  # as Spark: no reader sees a part

    def _report(self, batch: int) -> None:
        folder, oldest = queue_folder(str(self.checkpoint)), self.now_us - int(12 * SECOND)
        ages = Ages.of(self.random.integers(SECOND, 12 * SECOND, 50))
        for shard in range(2):
            write_report(
                folder,
                QueueReport(
                    shard,
                    batch_id=batch,
                    now_us=self.now_us - SECOND // 2,
                    state_bytes=40_000 + 700 * shard,
                    arrived=5_000,
                    applied=500,
                    superseded=4_400,
                    waiting=self.waiting // 2 + 70 * shard,
                    oldest_us=oldest,
                    ages=ages,
                    allocated=4_096,
                    stalest_keys=self._stalest(shard, oldest) if self.stalest_keys else None,
                ),
            )
            write_report(folder, ServiceReport(shard, 500, self.now_us - SECOND, self.now_us - SECOND // 2))

    def _stalest(self, shard: int, oldest_us: int) -> str:
        count = self.stalest_keys
        keys = pa.table(
            {
                "vehicle_id": self.random.choice(self.keys // 2, count, replace=False) * 2 + shard,
                "first_arrival": pa.array(oldest_us + np.arange(count) * 37_000).cast(TIMESTAMP),
                "covered": self.random.integers(1, 60, count),
            }
        )
        return base64.b64encode(to_frame(keys.replace_schema_metadata({"k": str(count)}))).decode()


def every_state(folder: Path, batches: int = 30) -> dict[str, Scene]:
    """Make a table for each state, in a folder of its own, by the state's name."""

    def scene(state: str, **more: object) -> Scene:
        return Scene(folder / state, query_id=f"query-{state}", name=state, **more)  # type: ignore[arg-type]

    running = scene("running").history(batches).hold(lease_s=LEASE_S).dead_letters(7)
    late = scene("late", silent=("feed/vehicles/2.csv",), silent_from=batches // 3, age_s=2.0)
    late.history(batches, every_s=3).hold(lease_s=LEASE_S)
    overloaded = (
        scene("overloaded", waiting=4_812, keys=5_000, rows_per_batch=999, age_s=5.0, stalest_keys=5)
        .history(batches)
        .hold(lease_s=LEASE_S)
    )
    failed = scene("failed").history(batches)
    failed.hold(gone=True, lease_s=LEASE_S)
    ended = scene("ended").history(batches).hold(lease_s=LEASE_S).end()
    empty = scene("empty")
    DeltaTable.create(str(empty.path), COLUMNS)
    return {each.name: each for each in (running, late, overloaded, failed, ended, empty)}


def hosted_job(folder: Path, rows: int = 60) -> Path:
    """Make a job of three queries over the newest rows of buses, and their tables; return its checkpoint."""
    now, lake = now_us(), folder / "lake"
    checkpoint = Path(begun(folder, str(lake)))
    numbers = range(rows)
    buses = pl.DataFrame(
        {
            "vehicle_id": [f"bus {n}" for n in numbers],
            "route_id": [str(n * 7 % 9) for n in numbers],
            "speed": [n * 13 % 29 * 0.7 for n in numbers],
            "timestamp": [now + n for n in numbers],
        }
    ).with_columns(pl.col("timestamp").cast(pl.Datetime("us", "UTC")))
    by_route = buses.group_by("route_id", maintain_order=True)
    queries = {
        "routes": (
            "SELECT route_id, COUNT(*) AS buses, AVG(speed) AS speed FROM LATEST(buses) GROUP BY route_id",
            by_route.agg(pl.len().alias("buses"), pl.col("speed").mean()),
        ),
        "fast": (FAST, buses.filter(pl.col("speed") > 10).drop("timestamp")),
        "fastest": (
            "SELECT route_id, MAX(speed) AS speed FROM LATEST(buses) GROUP BY route_id",
            by_route.agg(pl.col("speed").max()),
        ),
    }
    reports: dict[str, QueryReport] = {}
    for number, (name, (text, result)) in enumerate(queries.items()):
        register(str(checkpoint), name, text, weight=2.0 if name == "routes" else 1.0)
        result.write_delta(str(lake / name))
        reports[name] = QueryReport(
            begun=True, complete_from=-(1 << 62), rows=result.height, batch=4, committed_at_us=now,
            staleness_s=0.4 + 0.3 * number, cost_s=0.02 * (number + 1),
        )  # fmt: skip
    states = {"feed/0.csv": {"bound": now - SECOND, "received": 4_000, "late": 0, "suspects": 0}}
    source = {"version": 1, "connector": "files", "progress": states, "heard": {"feed/0.csv": now}, "ended": [],
              "punctuation": {}}  # fmt: skip
    planned(
        checkpoint,
        4,
        *({**source, "id": f"s{number}"} for number in range(3)),
        offset_of(str(checkpoint), len(queries)),
    )
    host = LocalHost(partial(registry_at, str(checkpoint)), 8, checkpoint=str(checkpoint))
    began_us, began = now_us(), time.perf_counter()
    host.batch(Command(4, len(queries)), {"buses": [scanned(BUSES, buses, [*numbers], {"f": now})]})
    took_s = time.perf_counter() - began
    report(checkpoint, HostTimes(began_us, 0.0, took_s, took_s + 0.02, 2), **reports)
    CheckpointLease(TableFolder(str(checkpoint))).hold("host", Process.of(os.getpid()), 600 * SECOND, now)
    return checkpoint
