"""What `changes=full` gives of a commit is what lies between two versions of the table, by another reader."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from kit.tables import read_table

from upstream.core.rows.system_column import SYSTEM
from upstream.delta_format.latest_table import SEQ
from upstream.sink.admin.erase import erase_key
from upstream.sink.admin.layout_change import change_history
from upstream.sink.commit.sink_table import SinkTable

from .following import Batches, Follower, options_of

# Key, time, whether it is a deletion.
ROWS = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 9), st.booleans()), min_size=1, max_size=12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), ROWS),
        st.tuples(st.just("batch"), ROWS),
        st.tuples(st.sampled_from(["optimize", "checkpoint", "restart", "erase", "keep"]), st.integers(0, 20)),
    ),
    max_size=12,
)
# For examples: a table of all keys, and batches that replace a few rows, then most of them.
TABLE: dict[str, Any] = {
    "before": [[(key, time, False) for key in range(21) for time in (0, 1)]],
    "tasks": 1,
    "timed": True,
    "buckets": "2",
}
MARKED = [("batch", [(key, time, False) for key in range(many)]) for many, time in ((4, 2), (18, 3))]
Row = tuple[int, int | None, str | None]


class Table(Batches):
    """A table, and what a second reader finds in each of its versions."""

    def at(self, version: int) -> Counter[tuple[Row, int]]:
        """The rows of a version, with their numbers: a row may be replaced by one that looks like it."""
        found = read_table(self.sink.path, version)
        columns = (found.column(name).to_pylist() for name in ("k", "t", "v", SEQ))
        return Counter(((k, t, v), seq) for k, t, v, seq in zip(*columns, strict=True))


def expected_changes(before: Counter[Any], after: Counter[Any], pairs: Any) -> list[list[tuple[str, Row]]]:
    """Changes by what lies between two versions, in groups that belong together."""
    left = {pairs(row): row for row, _ in before - after}
    came = {pairs(row): row for row, _ in after - before}
    groups = [
        [("insert", row)] if known not in left else [("update_preimage", left[known]), ("update_postimage", row)]
        for known, row in came.items()
    ]
    return groups + [[("delete", row)] for known, row in left.items() if known not in came]


def groups_of(rows: list[dict[str, Any]]) -> list[list[tuple[str, Row]]]:
    """Changes in the order of their numbers, a postimage with the preimage directly before it."""
    found: list[list[tuple[str, Row]]] = []
    for row in sorted(rows, key=lambda each: each[SYSTEM]["seq"]):
        change = (row["_change_type"], (row["k"], row["t"], row["v"]))
        assert row[SYSTEM]["deleted"] == (row["_change_type"] == "delete")
        if row["_change_type"] == "update_postimage":
            assert found[-1][-1][0] == "update_preimage"
            found[-1].append(change)
        else:
            found.append([change])
    return found


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.lists(ROWS, min_size=1, max_size=3),
    steps=STEPS,
    tasks=st.integers(1, 2),
    timed=st.booleans(),
    buckets=st.sampled_from(["1", "2"]),
    keep=st.sampled_from(["latest", "latest 2", "all"]),
    way=st.sampled_from(["rewrite", "beside", "vectors", "worn"]),
    by_delta_rs=st.booleans(),
)
# What is left of a file leaves with rows that were marked as dead before; delta-rs writes the entry in object stores.
@example(**TABLE, steps=MARKED, keep="latest", way="vectors", by_delta_rs=False)
@example(**TABLE, steps=MARKED, keep="latest", way="vectors", by_delta_rs=True)
@example(**TABLE, steps=[("keep", 0), ("batch", [(1, 3, False)])], keep="latest 2", way="rewrite", by_delta_rs=False)
@example(**TABLE, steps=[*MARKED[:1], ("erase", 3)], keep="latest", way="vectors", by_delta_rs=False)
def test_changes_are_the_difference_between_versions(
    make_first, monkeypatch, before, steps, tasks, timed, buckets, keep, way, by_delta_rs
):
    timed = timed or keep == "latest 2"
    monkeypatch.setattr(SinkTable, "_puts_entry", lambda *_: not by_delta_rs)
    with tempfile.TemporaryDirectory() as folder:
        kind = options_of(way, monkeypatch, folder)
        options = {
            "eventTime": "t" if timed else "",
            "buckets": buckets,
            "history": "" if keep == "latest" else keep,
            **kind,
        }
        table = Table(make_first(Path(folder) / "first", **options), values=3)
        deletes = keep != "all"

        def batch(rows: list[tuple[int, int, bool]]) -> None:
            table.batch([(k, t, gone and deletes) for k, t, gone in rows], tasks if timed else 1)

        for rows in before:
            batch(rows)
        numbers = {"timeFormat": "epoch_us" if timed else ""}
        # A commit is never divided, and a batch takes one at least: so each batch is a commit.
        follower = Follower(table.sink.path, changes="full", maxFilesPerTrigger="1", punctuation="false", **numbers)
        state: Counter[Row] = Counter()
        kept = 2 if keep == "latest 2" else 1

        def follow() -> None:
            nonlocal kept
            start: dict[str, Any] = follower.offset.get("position", {})
            end = follower.plan()
            if end == follower.offset:
                return
            batches = follower.read(end)
            assert follower.read(end) == batches
            rows = [row for task in batches for each in task for row in each.to_pylist()]
            follower.offset = end
            for row in rows:
                one = Counter([(row["k"], row["t"], row["v"])])
                if row["_change_type"] in ("insert", "update_postimage"):
                    state.update(one)
                else:
                    assert state >= one, "a row leaves that is not in the table"
                    state.subtract(one)
            version = end["position"]["version"]
            if end["position"]["files"] is not None or start.get("files", 0) is not None:
                assert {row["_change_type"] for row in rows} <= {"insert"}  # the table that it begins with
                return
            assert version == start["version"] + 1
            first, second = table.at(start["version"]), table.at(version)
            both = (lambda row: row[:2]) if kept > 1 else (lambda row: row[0])
            found = groups_of(rows)
            if keep == "all":  # of rows that look alike each is an insertion of its own
                came = Counter(row for row, _ in second - first)
                gone = Counter(row for row, _ in first - second)
                assert Counter(row for ((kind, row),) in found if kind == "insert") == came
                assert Counter(row for ((kind, row),) in found if kind == "delete") == gone
                return
            assert sorted(found) == sorted(expected_changes(first, second, both))

        while follower.plan() != follower.offset and follower.offset.get("position", {}).get("files", 0) is not None:
            follow()
        for step, given_ in steps:
            if step == "batch":
                batch(given_)
            elif step == "optimize":
                DeltaTable(str(table.sink.path)).optimize.compact()
            elif step == "checkpoint":
                DeltaTable(str(table.sink.path)).create_checkpoint()
            elif step == "erase":
                erase_key(str(table.sink.path), given_)
            elif step == "keep" and kept > 1:
                change_history(str(table.sink.path), "latest")
                while follower.plan() != follower.offset:
                    follow()
                kept = 1
                table.sink.options = {name: value for name, value in table.sink.options.items() if name != "history"}
            else:
                follower.restart()
        while follower.plan() != follower.offset:
            follow()
        assert +state == Counter(row for row, _ in table.at(table.sink.version()).elements())


# Key, time, whether it is a deletion.
FOLLOWED_ROWS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 9), st.booleans()), min_size=1, max_size=12)
FOLLOWED_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), FOLLOWED_ROWS),
        st.tuples(st.sampled_from(["optimize", "checkpoint", "follow", "die", "restart"]), st.none()),
    ),
    max_size=14,
)


class Chain(Batches):
    """Two tables and the follower between them; what the first delivers is counted against what the second is given."""

    def __init__(self, first: Any, second: Any) -> None:
        super().__init__(first, values=1 << 30)
        self.first, self.second = first, second
        self.applied = self.received = 0

    def batch(self, rows: list[tuple[int, int, bool]], tasks: int) -> None:
        self.applied += super().batch(rows, tasks).applied

    def begin(self, limit: str) -> None:
        numbers = {"timeFormat": "epoch_us" if "eventTime" in self.first.options else ""}
        self.follower = Follower(self.first.path, maxRowsPerTrigger=limit, **numbers)
        self.follow()

    def follow(self, *, dies: bool = False) -> bool:
        """One batch of the second query; whether there was one."""
        if self.follower.offset["batch"] == 0:
            self.applied = self.first.table().num_rows  # it begins with the table as it is now
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
    before=st.lists(FOLLOWED_ROWS, min_size=1, max_size=3),
    steps=FOLLOWED_STEPS,
    tasks=st.integers(1, 2),
    limit=st.sampled_from(["1", "5", "1000"]),
    timed=st.booleans(),
    way=st.sampled_from(["rewrite", "beside", "vectors", "worn"]),
)
def test_the_chained_table_equals_the_first(make_first, monkeypatch, before, steps, tasks, limit, timed, way):
    with tempfile.TemporaryDirectory() as folder:
        time = "t" if timed else ""
        kind = options_of(way, monkeypatch, folder)
        first, second = (make_first(Path(folder) / name, eventTime=time, **kind) for name in ("first", "second"))
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
        assert chain.received == chain.applied
        expected = chain.first.latest()
        assert (chain.second.latest() if chain.second.path.exists() else {}) == expected
