"""What an entry of the log says of each bucket."""

from typing import Any

import pytest

from upstream.conf.errors import TableError
from upstream.datasource.connectors.latest_table.changes import (
    BucketChange,
    CameFile,
    LeftRows,
    bucket_changes,
    keep_after,
)
from upstream.delta_format.deletion_vectors import DeletionVector
from upstream.delta_format.latest_table import BUCKET, DELIVERED_KEY, KEEP_PROPERTY, CommitChanges

EARLIER, LATER = DeletionVector("u", "a" * 20, 1, 34, 1), DeletionVector("u", "a" * 20, 50, 36, 2)


def action(kind: str, path: str, bucket: int | None, vector: DeletionVector | None = None, **more: Any) -> Any:
    values = {} if bucket is None else {"partitionValues": {BUCKET: str(bucket)}}
    marked = {} if vector is None else {"deletionVector": vector.to_json()}
    return {kind: {"path": path, "dataChange": True, **values, **marked, **more}}


def commit(rows: dict[str, int], deletions: dict[str, int]) -> Any:
    return {"commitInfo": {DELIVERED_KEY: CommitChanges(0, rows, deletions).to_json()}}


def test_files_that_came_left_and_were_marked():
    deleted = f"deleted/{BUCKET}=1/part-d.parquet"
    actions = [
        commit({"new%1": 3}, {deleted: 2}),
        action("remove", "old", 0, EARLIER),
        action("add", "new%251", 0),  # the log has paths encoded
        action("remove", "stays", 1, EARLIER),
        action("add", "stays", 1, LATER),
        {"txn": {"appId": "a", "version": 1}},
    ]
    assert bucket_changes(actions, "here") == {
        "0": BucketChange([LeftRows("old", EARLIER, None, marked=False)], [CameFile("new%1", 3)]),
        "1": BucketChange([LeftRows("stays", EARLIER, LATER, marked=True)], (), 2),
    }


def test_files_that_were_only_put_elsewhere_are_no_change():
    actions = [commit({}, {}), action("remove", "a", 0, dataChange=False), action("add", "b", 0, dataChange=False)]
    assert bucket_changes(actions, "here") == {}


def test_a_bucket_is_known_by_its_folder_as_well():
    actions = [commit({}, {}), action("remove", f"{BUCKET}=12/part-a.parquet", None), action("add", "b", 2)]
    assert list(bucket_changes(actions, "here")) == ["2", "12"]
    with pytest.raises(TableError, match="part-a"):
        bucket_changes([action("remove", "part-a", None)], "here")


@pytest.mark.parametrize(
    ("change", "keep", "most"),
    [
        (BucketChange((), [CameFile("a", 3)]), 1, 6),
        (BucketChange([LeftRows("b", None, None, marked=False)], [CameFile("a", 3)], 2), 1, 8),
        (BucketChange([LeftRows("b", None, None, marked=False)], [CameFile("a", 3)], 2), 4, 14),
        (BucketChange([LeftRows("b", None, None, marked=False)], [CameFile("a", 0)]), 1, None),
        (BucketChange((), [CameFile("a", 0)]), None, 0),
    ],
)
def test_bounds_of_the_number_of_changes(change, keep, most):
    assert change.most_changes(keep) == most


def test_how_many_rows_of_a_key_are_kept_after_a_commit():
    def metadata(**properties: str) -> Any:
        return {"metaData": {"configuration": properties}}

    assert keep_after([{"add": {}}], 3) == 3
    assert keep_after([metadata(**{KEEP_PROPERTY: "latest 5"})], 1) == 5
    assert keep_after([metadata(**{KEEP_PROPERTY: "latest"})], 5) == 1
    assert keep_after([metadata()], 5) == 1
    assert keep_after([metadata(**{KEEP_PROPERTY: "all"})], 1) is None
