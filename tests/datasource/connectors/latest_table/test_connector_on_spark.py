"""Tables that follow tables on Spark, by newest rows and by all changes, over restarts."""

from typing import Any

import pytest
from kit.feeds import write_csv
from kit.queries import write_to_end
from kit.tables import read_rows

import upstream as us


def test_a_table_that_follows_another_over_restarts_equals_it(spark, tmp_path):
    feed, table, follower = (tmp_path / name for name in ("feed", "table", "follower"))
    for number in range(2):
        write_csv(
            feed / f"{number}.csv", "k,t,v", [(key, f"2024-01-01 00:00:0{number}", number) for key in ("a", number)]
        )
        updates = us.latest(spark, str(feed), key="k", event_time="t")
        write_to_end(updates, table, f"{table}_checkpoint", key="k", event_time="t", buckets=2)
        changes = us.latest(spark, f"latest:{table}")
        write_to_end(changes, follower, f"{follower}_checkpoint", key="k", event_time="t", buckets=2)
        assert read_rows(follower, "k", "v") == read_rows(table, "k", "v")
    stream = us.read(spark, f"latest:{table}")
    assert (stream.key, stream.event_time) == (("k",), "t"), "the table's own"
    batch = spark.read.format("upstream").options(connector="latest").load(str(table))
    assert sorted((row.k, row.v) for row in batch.collect()) == [("0", 0), ("1", 1), ("a", 1)]


def test_steps_that_take_each_row_for_an_update_are_refused(spark, tmp_path):
    feed, table = tmp_path / "feed", tmp_path / "table"
    write_csv(feed / "0.csv", "k,v", [(1, 1)])
    write_to_end(us.latest(spark, str(feed), key="k"), table, f"{table}_checkpoint", key="k", buckets=1)
    given: dict[str, Any] = {"connector": "latest", "changes": "full"}
    with pytest.raises(us.errors.SchemaError, match="changes=full"):
        us.read(spark, str(table), key="k", **given)
    rows = spark.readStream.format("upstream").options(**given).load(str(table))
    with pytest.raises(us.errors.SchemaError, match="remove changes"):
        us.UpdateStream(rows.where("v > 0").drop("_change_type"), key="k")
    with pytest.raises(us.errors.SchemaError, match="preimage"):
        us.UpdateStream.from_dataframe(rows.drop("_upstream"), key="k")
    with pytest.raises(us.errors.SchemaError, match="changes=full"):
        us.write_latest(rows, str(tmp_path / "other"), key="k")
    batch = spark.read.format("upstream").options(**given).load(str(table))
    assert [(row.k, row["_change_type"]) for row in batch.collect()] == [(1, "insert")]
