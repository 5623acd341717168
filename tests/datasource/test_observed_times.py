"""Progress from tasks: the same as the driver's own look, one batch later; never a lie; the same after any crash."""

import itertools
import json
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.journal import through_json
from kit.memory_connector import MemoryConnector

from upstream.core.feedback.offsets import SourceCounts, journaled_counts
from upstream.core.rows.key import Key
from upstream.core.watermark.bounds import beginning
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.options import SourceOptions
from upstream.datasource.planner import BatchPlanner, Offset
from upstream.datasource.schema import leaving_schema, shape_of
from upstream.datasource.task import Reading
from upstream.storage.folder import TableFolder

from .driven_feeds import NUMBERED, DearConnector, table_of

ROW = st.tuples(
    st.sampled_from("xyz"), st.one_of(st.integers(0, 60), st.integers(5000, 5060), st.none()), st.integers(0, 9)
)
ROWS = st.lists(ROW, max_size=30)


def begins_with_a_time(batches: list[dict[str, list[Any]]]) -> bool:
    """Whether the first batch with rows has one with a time: else the driver refuses the time column."""
    first = next((batch for batch in batches if any(batch.values())), {})
    return not any(first.values()) or any(row[1] is not None for rows in first.values() for row in rows)


BATCHES = st.lists(st.fixed_dictionaries({"a": ROWS, "b": ROWS}), min_size=1, max_size=6).filter(begins_with_a_time)
DEAD = tempfile.TemporaryDirectory()
POLICIES = st.sampled_from(["ordered", "bounded", "displaced"])


class Stream:
    """A source that is planned and read batch by batch, with restarts at any step."""

    def __init__(self, connector: MemoryConnector, policy: str, folder: str | None) -> None:
        self.options = SourceOptions(
            key=Key(("k",)), time="ms", time_format="epoch_ms", progress=policy, progress_delay_us=5000,
            progress_displacement=3, max_jump_us=1_000_000, confirmations=3, checkpoint_location=folder,
            dead_letters=DEAD.name, min_partitions=2,
        )  # fmt: skip
        self.shape = shape_of(leaving_schema(NUMBERED, self.options), self.options)
        self.connector = connector
        self.clock = itertools.count(1_000_000, 500)
        self.journal: list[Offset] = [BatchPlanner.initial()]
        self.restart()

    def restart(self) -> None:
        self.planner = BatchPlanner(
            self.connector, self.options, self.shape, clock=lambda: next(self.clock), new_id=lambda: "test"
        )

    def plan(self) -> bool:
        start = self.journal[-1]
        end = through_json(self.planner.plan(start, Limit()))
        if end == start:
            return False
        self.journal.append(end)
        return True

    def run(self, stop_after: int | None = None) -> list[dict[str, Any]]:
        """Run the last planned batch, perhaps as far as so many of its tasks."""
        reading = Reading(self.options, self.shape, self.connector, DEAD.name)
        tasks = self.planner.tasks(*self.journal[-2:])
        chosen = tasks if stop_after is None else tasks[:stop_after]
        return [row for task in chosen for batch in reading.read(task) for row in batch.to_pylist()]


def promises(rows: list[dict[str, Any]]) -> dict[str, int]:
    marks = [row for row in rows if row["_upstream"]["punctuation"]]
    least = beginning(pa.int64()).as_py()  # says only that the feed is there
    return {row["_upstream"]["source"]: row["ms"] for row in marks if row["ms"] != least}


def reached(end: Offset) -> dict[str, Any]:
    """Each feed's progress, but for what is judged a batch earlier or later."""
    found = {feed: dict(state) for feed, state in end.get("progress", {}).items()}
    for state in found.values():
        for name in ("late", "late_idle", "skew", *(() if state["own"] is not None else ("bound",))):
            state.pop(name, None)
    return found


@settings(max_examples=60)
@given(batches=BATCHES, policy=POLICIES, most=st.sampled_from([4, 100]), data=st.data())
def test_tasks_see_what_the_driver_sees_one_batch_later(batches, policy, most, data):
    with tempfile.TemporaryDirectory() as folder:
        plain = MemoryConnector({"a": table_of([]), "b": table_of([])}, most)
        dear = DearConnector(dict(plain.tables), most)
        driver, tasks = Stream(plain, policy, None), Stream(dear, policy, folder)
        promised: dict[str, int] = {}
        late = 0
        for rows in batches:
            for connector in (plain, dear):
                connector.tables = {
                    feed: pa.concat_tables([table, table_of(rows[feed])]) for feed, table in connector.tables.items()
                }
            if driver.plan():
                driver.run()
            if not tasks.plan():
                continue
            # The process dies after some of the tasks, or their reports are lost; the batch is run again, and planned
            # on by another process.
            if data.draw(st.booleans()):
                tasks.run(stop_after=data.draw(st.integers(0, 2)))
                tasks.restart()
            given_rows = tasks.run()
            assert tasks.run() == given_rows, "run again"
            for row in given_rows:
                feed = row["_upstream"]["source"]
                late += not row["_upstream"]["punctuation"] and row["ms"] < promised.get(feed, -1)
            for feed, bound in promises(given_rows).items():
                assert bound >= promised.get(feed, bound), "a promise was taken back"
                promised[feed] = bound
            if data.draw(st.booleans()):
                for path in Path(folder, "upstream-times").glob("*.json"):
                    if data.draw(st.booleans()):
                        path.unlink()
            tasks.planner.commit(tasks.journal[-2])
        while tasks.plan():  # the batch without rows, that tells what the last rows showed
            tasks.run()
        assert reached(driver.journal[-1]) == reached(tasks.journal[-1])
        assert sum(state["late"] for state in tasks.journal[-1].get("progress", {}).values()) == late
        assert "unseen" not in tasks.journal[-1]
        assert not tasks.plan(), "nothing has come, and there is work"


def test_a_feed_ends_when_its_last_rows_were_looked_at(tmp_path):
    connector = DearConnector({"a": table_of([("x", 10, 1), ("x", 20, 2)])}, 100)
    connector.ended = frozenset({"a"})
    stream = Stream(connector, "bounded", str(tmp_path))
    assert stream.plan()
    assert promises(stream.run()) == {}
    assert stream.journal[-1]["ended"] == []
    assert stream.plan()
    assert promises(stream.run()) == {"a": None}
    assert stream.journal[-1]["ended"] == ["a"]
    assert not stream.plan()


def test_the_account_of_a_batch_counts_its_own_rows(tmp_path):
    connector = DearConnector({"a": table_of([("x", 10, 1), ("x", 20, 2)])}, 100)
    stream = Stream(connector, "ordered", str(tmp_path))
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    assert stream.plan()
    (offsets / "0").write_text("v1\n{}\n" + json.dumps(stream.journal[-1]))
    assert journaled_counts(TableFolder(str(tmp_path)), 0) is None, "nobody has looked yet"
    stream.run()
    assert journaled_counts(TableFolder(str(tmp_path)), 0) == SourceCounts(2, 0, 0, suspects=2, held=2)


def test_without_a_place_for_reports_the_driver_looks():
    connector = DearConnector({"a": table_of([("x", 10, 1), ("x", 20, 2)])}, 100)
    stream = Stream(connector, "ordered", None)
    assert stream.plan()
    assert "unseen" not in stream.journal[-1]
    assert promises(stream.run()) == {}  # three rows confirm a first time


def test_reports_go_when_they_are_in_the_journal(tmp_path):
    connector = DearConnector({"a": table_of([])}, 100)
    stream = Stream(connector, "ordered", str(tmp_path))
    for number in range(5):
        connector.tables = {"a": pa.concat_tables([connector.tables["a"], table_of([("x", number, number)])])}
        assert stream.plan()
        stream.run()
        if number:
            stream.planner.commit(stream.journal[-2])
    names = [path.name for path in (tmp_path / "upstream-times").glob("*.json")]
    assert sorted(names) == ["test-00000004-0000.json", "test-00000005-0000.json"]
