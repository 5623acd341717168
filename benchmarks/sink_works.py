"""The engines of :mod:`benchmarks.sink`, and what each is given to do."""

from __future__ import annotations

import dataclasses

__all__ = ["ENGINES", "FULL", "QUICK", "US", "Engine", "Work"]

US = "upstream"


@dataclasses.dataclass(frozen=True)
class Engine:
    """A way to upsert.

    Attributes
    ----------
    name : str
    kind : str
        What the engine's process is told.
    vectors : bool
        Whether the table has deletion vectors.
    most_keys : int
        The largest table that it is run on.
    most_batches : int
        How many batches it is given at most.
    maintenance : str
        Of ours: `off` is run in works of many commits alone.
    """

    name: str
    kind: str
    vectors: bool = False
    most_keys: int = 10_000_000
    most_batches: int = 12
    maintenance: str = "auto"

    @property
    def base(self) -> str:
        """What its table is like before the first batch: shared by those that begin with the same."""
        return "ours" if self.name.startswith(US) else "delta-vectors" if self.vectors else "delta"


ENGINES = (
    Engine(f"{US} (auto)", "auto", most_keys=50_000_000, most_batches=200),
    Engine(f"{US} (left alone)", "auto", maintenance="off"),
    Engine(f"{US} (rewrite)", "rewrite", most_batches=40),
    Engine("MERGE", "merge"),
    Engine("MERGE, deletion vectors", "merge", vectors=True),
    Engine("replaceUsing", "replaceUsing"),
    Engine("delta-rs merge", "delta-rs"),
)


@dataclasses.dataclass(frozen=True)
class Work:
    """One table and one stream of updates.

    Attributes
    ----------
    keys : int
        Of the table.
    updates : int
        In a batch.
    zipf : bool
        Whether some keys are updated much more often than others.
    commits : int
        How many batches, if not as many as usual. Too long for others than our default.
    """

    keys: int
    updates: int
    zipf: bool = False
    commits: int = 0

    def __str__(self) -> str:
        long = f", {self.commits:,} commits" if self.commits else ""
        return f"{self.keys:,} keys, {self.updates:,} {'Zipf' if self.zipf else 'uniform'} updates a batch{long}"


FULL = [
    *(Work(keys, 10_000) for keys in (1_000_000, 10_000_000, 50_000_000)),
    *(Work(keys, updates) for updates in (100, 100_000) for keys in (1_000_000, 10_000_000)),
    *(Work(keys, 10_000, zipf=True) for keys in (1_000_000, 10_000_000)),
    *(Work(keys, 10_000, commits=1_000) for keys in (1_000_000, 10_000_000)),
]
QUICK = [Work(200_000, 10_000)]
