"""What consumers on Spark see of a table's changes while its writer maintains it: by following it, and by Delta's
change data feed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from kit.queries import write_to_end
from kit.tables import read_rows
from pyspark.errors import StreamingQueryException

import upstream
from upstream.sink.maintenance.runner import Upkeep
from upstream.sink.spec.maintenance_rules import Maintained, MaintenanceRules
from upstream.storage.folder import TableFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def maintained(sink: Any, versions: int) -> Maintained:
    """So many versions stay, and the log gets the checkpoint from which the next time more of them may go."""
    rules = MaintenanceRules(versions=versions)
    return Upkeep(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), rules).run(whole=True)


def some(sink: Any, batches: range) -> None:
    for number in batches:
        rows = [(key, number, f"v{number}") for key in {number % 12, number * 5 % 12}]
        sink.batch(
            number,
            [
                sink.rows(
                    [*rows, (number % 7 + 20, number, None)], seq=number * 10, deleted=[*[False] * len(rows), True]
                )
            ],
        )


def test_a_chain_goes_on_over_maintenance_and_a_follower_too_far_behind_is_reported(
    spark: SparkSession, make_sink: Any, tmp_path: Path
) -> None:
    sink, second = make_sink(maintenance="off"), tmp_path / "second"

    def follow() -> None:
        rows = upstream.latest(spark, str(sink.path), key="k", connector="latest", timeFormat="epoch_us")
        write_to_end(rows, second, tmp_path / "follower", key="k", event_time="t", buckets=4)

    sink.batch(0, [sink.rows([(key, 0, "v0") for key in range(27)])])
    follow()
    removed = 0
    for start in (1, 9):
        some(sink, range(start, start + 8))
        removed += maintained(sink, versions=14).entries
        follow()
        assert read_rows(second, "k", "t", "v") == read_rows(sink.path, "k", "t", "v")
    for start in (17, 29):
        some(sink, range(start, start + 12))
        removed += maintained(sink, versions=8).entries
    assert removed > 0
    with pytest.raises(StreamingQueryException, match=r"is gone before it was read.*retention"):
        follow()


def test_deltas_change_data_feed_is_right_and_reports_more_than_has_changed(
    spark: SparkSession, make_sink: Any
) -> None:
    """Where a user enables it: a rewritten bucket is all deleted and inserted, which comes to the same."""
    sink = make_sink(buckets="2", maintenance="off")
    sink.batch(0, [sink.rows([(key, 0, "v0") for key in range(27)])])
    start = sink.version()
    before = {row["k"]: (row["t"], row["v"]) for row in sink.table().to_pylist()}
    DeltaTable(str(sink.path)).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    some(sink, range(1, 7))
    maintained(sink, versions=1000)
    some(sink, range(7, 9))
    changes = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", start + 1)
    rows = changes.load(str(sink.path)).collect()
    state = dict(before)
    for version in sorted({row["_commit_version"] for row in rows}):
        of_version = [row for row in rows if row["_commit_version"] == version]
        for row in (row for row in of_version if row["_change_type"] == "delete"):
            assert state.pop(row["k"]) == (row["t"], row["v"])
        for row in (row for row in of_version if row["_change_type"] == "insert"):
            assert row["k"] not in state
            state[row["k"]] = (row["t"], row["v"])
    assert {row["_change_type"] for row in rows} == {"insert", "delete"}
    assert state == {row["k"]: (row["t"], row["v"]) for row in sink.table().to_pylist()}
    delivered = 3 * 8
    assert len(rows) > 4 * delivered, "unchanged rows of a bucket are in it"
    # Beyond what is kept it refuses, as well.
    maintained(sink, versions=2)
    some(sink, range(9, 11))
    maintained(sink, versions=2)
    with pytest.raises(Exception, match=r"DELTA_VERSION_NOT_FOUND|DELTA_LOG_FILE_NOT_FOUND|DELTA_.*"):
        changes.load(str(sink.path)).collect()
