"""Readers in a loop while a sink commits, and what they must never see."""

import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from upstream.sink.spec.maintenance_rules import MaintenanceRules

from .sink import Sink

PAIRS = 60
Read = Callable[[str], pa.Table]


class Reader(threading.Thread):
    """Reads over and over; keeps the first thing that is wrong."""

    needed = 5

    def __init__(self, name: str, read: Read, sink: Sink, over: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self._read = read
        self._path = str(sink.path)
        self._over = over
        self.reads = 0
        self.began_at = 0  # batches committed when the read under way began
        self.committed = 0  # batches, as the writer counts them
        self.wrong: str | None = None

    def run(self) -> None:
        seen = np.full(2 * PAIRS, -1)
        try:
            while self.wrong is None and not self._over.is_set():
                self.began_at = self.committed
                rows = self._read(self._path)
                self.wrong = self._problem(rows, seen)
                self.reads += 1
        except Exception as error:
            self.wrong = f"{type(error).__name__}: {error}"

    def _problem(self, rows: pa.Table, seen: np.ndarray) -> str | None:
        keys, times = rows.column("k").to_numpy(), rows.column("t").to_numpy()
        if len(keys) != 2 * PAIRS or len(np.unique(keys)) != len(keys):
            return f"{len(keys)} rows of {len(np.unique(keys))} keys where there are {2 * PAIRS}"
        values = times[np.argsort(keys)]
        if (values[:PAIRS] != values[PAIRS:]).any():
            return "half of a batch"
        if (values < seen).any():
            return "a value that goes back"
        if values.max() < self.began_at - 1:
            return f"batch {values.max()}, where batch {self.began_at - 1} was committed before the read began"
        seen[:] = values
        return None


class SlowReader(Reader):
    """Opens the table, and reads it when forty batches more have been committed: a query under way."""

    needed = 2

    def __init__(self, sink: Sink, over: threading.Event) -> None:
        super().__init__("slow", self._slowly, sink, over)

    def _slowly(self, path: str) -> pa.Table:
        table = DeltaTable(path)
        while self.committed < self.began_at + 40 and not self._over.is_set():
            time.sleep(0.01)
        return table.to_pyarrow_table(columns=["k", "t"])


def attack(sink: Sink, readers: dict[str, Read], *, batches: int, seconds: float) -> list[Reader]:
    """Batches that change both halves of some pairs of keys, which lie in any buckets, to their own number."""
    chance = np.random.default_rng(3)
    keys = np.arange(PAIRS)
    sink.batch(0, [sink.rows([(int(key), 0, "x") for key in range(2 * PAIRS)])])
    over = threading.Event()
    running = [*(Reader(name, read, sink, over) for name, read in readers.items()), SlowReader(sink, over)]
    for reader in running:
        reader.committed = 1
        reader.start()
    number, end = 0, time.monotonic() + seconds
    # At least so many batches and so many reads of each, however slow the machine.
    while number < batches or time.monotonic() < end or any(reader.reads < reader.needed for reader in running):
        if any(reader.wrong for reader in running):
            break
        # What is promised are so many versions. A reader that the machine holds up for longer is no reader that was
        # promised anything.
        if number - min(reader.began_at for reader in running) > 60:
            time.sleep(0.005)
            continue
        number += 1
        chosen = chance.choice(keys, 6, replace=False)
        both = [*chosen, *(chosen + PAIRS)]
        sink.batch(number, [sink.rows([(int(key), number, "x") for key in both], seq=number * 1000)])
        for reader in running:
            reader.committed = number + 1
    over.set()
    for reader in running:
        reader.join()
    return running


def check(sink: Sink, readers: list[Reader]) -> None:
    assert {reader.name: reader.wrong for reader in readers if reader.wrong} == {}
    oldest = min(int(place.name[:20]) for place in (sink.path / "_delta_log").glob("*.json"))
    assert oldest > 0, "maintenance has removed what they read before"
    assert all(reader.reads >= reader.needed for reader in readers)


def maintain_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Maintain tables after each 20 commits."""
    monkeypatch.setattr(MaintenanceRules.__init__, "__defaults__", (604_800_000_000, 100, 2.0, 20))
