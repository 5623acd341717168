"""A table that follows another one is that table, whatever happens in between."""

import tempfile
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.core.rows.system_column import SYSTEM

from .following import Batches, Follower, options_of

# Key, time, whether it is a deletion.
ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.booleans()), min_size=1, max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), ROWS),
        st.tuples(st.sampled_from(["optimize", "checkpoint", "follow", "die", "restart"]), st.none()),
    ),
    max_size=14,
)


class Chain(Batches):
    """Two tables and the follower between them; what the first delivers is counted against what the second is given."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, values=1 << 30)
        self.first, self.second = first, second
        self.delivered = self.received = 0

    def batch(self, rows: list[tuple[int, int, bool]], tasks: int) -> None:
        self.delivered += super().batch(rows, tasks).delivered

    def begin(self, limit: str) -> None:
        numbers = {"timeFormat": "epoch_us" if "time" in self.first.options else ""}
        self.follower = Follower(self.first.path, maxRowsPerTrigger=limit, **numbers)
        self.follow()

    def follow(self, *, dies: bool = False) -> bool:
        """One batch of the second query; whether there was one."""
        if self.follower.offset["batch"] == 0:
            self.delivered = self.first.table().num_rows  # it begins with the table as it is now
        end = self.follower.plan()
        if end == self.follower.offset:
            return False
        results = self.second.tasks(*self.follower.read(end))
        if dies:
            # After its commit, and before Spark has heard of it: the batch is run again.
            self.second.commit(results, end["batch"])
            self.follower.restart()
            results = self.second.tasks(*self.follower.read(end))
        self.second.commit(results, end["batch"])
        self.received += sum(
            len(batch) - sum(row["punctuation"] for row in batch.column(SYSTEM).to_pylist())
            for task in self.follower.read(end)
            for batch in task
        )
        self.follower.offset = end
        return True


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(ROWS, min_size=1, max_size=3),
    steps=STEPS,
    tasks=st.integers(1, 2),
    limit=st.sampled_from(["1", "5", "1000"]),
    timed=st.booleans(),
    way=st.sampled_from(["rewrite", "beside", "vectors", "worn"]),
)
def test_the_chained_table_equals_the_first(make_first, monkeypatch, before, steps, tasks, limit, timed, way):
    with tempfile.TemporaryDirectory() as folder:
        time = "t" if timed else ""
        kind = options_of(way, monkeypatch, folder)
        first, second = (make_first(Path(folder) / name, time=time, **kind) for name in ("first", "second"))
        chain = Chain(first, second)
        for rows in before:
            chain.batch(rows, tasks if timed else 1)
        chain.begin(limit)
        for step, rows in steps:
            if step == "batch":
                chain.batch(rows, tasks if timed else 1)
            elif step == "optimize":
                DeltaTable(str(chain.first.path)).optimize.compact()
            elif step == "checkpoint":
                DeltaTable(str(chain.first.path)).create_checkpoint()
            elif step == "restart":
                chain.follower.restart()
            else:
                chain.follow(dies=step == "die")
        while chain.follow():
            pass
        assert chain.received == chain.delivered
        expected = chain.first.latest()
        assert (chain.second.latest() if chain.second.path.exists() else {}) == expected
