"""Settings that change while a query runs: from the next batch on, and again in a batch that is repeated."""

from pathlib import Path

import pytest
from kit.jobs import Job, last_commit
from kit.waiting import wait_for

from upstream.core.feedback.offsets import journaled_offsets
from upstream.sink.figures.summary import read_summaries
from upstream.sink.spec.steps import CommitStep
from upstream.storage.folder import TableFolder
from upstream.workbench.control import ControlTables, control_tables

from . import jobs

KEYS = 4000
BUDGET = 60
SAMPLED = ("source", "queue", "sink")


def written(feed: Path) -> None:
    """Files that take many batches: few rows come in each, and far fewer leave the queue."""
    feed.mkdir()
    for number in range(4):
        rows = (f"{key},{number * 1000 + key % 1000},v{number}0" for key in range(KEYS))
        (feed / f"part-{number}.csv").write_text("\n".join(["k,ms,v", *rows]) + "\n")


def planned(checkpoint: Path) -> int:
    return max((int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")), default=-1)


def changed(table: Path, **values: object) -> None:
    """Change attributes, named ENTITY__ATTRIBUTE, as another process does."""
    for name, value in values.items():
        control_tables(str(table), {}).change(*name.split("__"), value, by="a test")


def budget_of(table: Path) -> tuple[str, int | None]:
    """The queue's budget in force, and the batch that took its last change."""
    budget = control_tables(str(table), {}).entity("queue")["attributes"][0]
    taken = None if budget["changed"] is None else budget["changed"]["taken"]
    return budget["value"], None if taken is None else taken["batch"]


def wait_until(query, reached) -> None:
    wait_for(reached, lambda: None if query.isActive else query.exception())


@pytest.mark.fault
def test_a_batch_that_is_repeated_has_the_settings_with_which_it_was_planned(spark, tmp_path):
    feed, table, checkpoint = (tmp_path / name for name in ("feed", "table", "table_checkpoint"))
    written(feed)
    job = Job(Path(jobs.__file__), tmp_path / "job.log", ("latest", feed, table, checkpoint))
    job.kill_when(lambda: last_commit(checkpoint) >= 2, "linecutting")
    # The batch after what is planned takes these, and dies with them in its journal and not in the table.
    first = planned(checkpoint) + 1
    changed(table, queue__budget=17, queue__cost="2 ms", sink__target="p99 < 1 h", source__maxRowsPerTrigger=50)
    changed(table, **{f"{entity}__sample": "now" for entity in SAMPLED})
    job.kill_at(CommitStep.LOOKED, "linecutting", batch=first)
    assert planned(checkpoint) == first > last_commit(checkpoint)
    noted = (checkpoint / "offsets" / str(first)).read_bytes()
    samples = [control_tables(str(table), {}).sample(entity) for entity in SAMPLED]
    assert [each["batches"] for each in samples] == [[first]] * 3
    assert all(each["rows"] for each in samples)
    changed(table, queue__budget=23, queue__cost="auto", sink__target="p99 < 2 h", source__maxRowsPerTrigger="none")

    query = jobs.latest(spark, str(feed), str(table), str(checkpoint), "linecutting").start()
    try:
        wait_until(query, lambda: last_commit(checkpoint) >= first + 2)
        assert budget_of(table) == ("23", first + 1)
        changed(table, queue__budget=None)
        wait_until(query, lambda: budget_of(table)[1] is not None)
        undone = budget_of(table)[1]
        changed(table, sink__maintenance="now")
        wait_until(query, lambda: last_commit(checkpoint) >= undone + 3)
    finally:
        query.stop()

    assert (checkpoint / "offsets" / str(first)).read_bytes() == noted
    for entity, was in zip(SAMPLED, samples, strict=True):
        rows = control_tables(str(table), {}).sample(entity)["rows"]
        assert [row for row in rows if row in was["rows"]] == was["rows"]  # other shards may have added theirs since
    commits = {summary.batch_id: summary for _, summary in read_summaries(str(table))}
    assert [commits[batch].queue.applied for batch in (first - 1, first, first + 1, undone)] == [BUDGET, 17, 23, BUDGET]
    assert [commits[batch].target for batch in (first - 1, first, first + 1)] == [
        None, "p99 < 1 h 00 min", "p99 < 2 h 00 min",
    ]  # fmt: skip
    assert commits[first].queue.arrived <= 50 < commits[first + 1].queue.arrived
    maintained = [commits[batch].maintained for batch in sorted(commits) if batch > undone]
    assert any(each is not None for each in maintained)
    shown = ControlTables(TableFolder(str(checkpoint))).to_json()["changes"]
    assert all(each["taken"] is not None for each in shown if each["attribute"] != "maintenance")
    offsets = [each for each in journaled_offsets(TableFolder(str(checkpoint)), first) if isinstance(each, dict)]
    (source,) = (each for each in offsets if "limits" in each)
    assert source["limits"]["maxRowsPerTrigger"] == 50
    assert [each["kept"] for each in offsets if "asked" in each] == [{"budget": 5, "cost_s": 0.008}]
