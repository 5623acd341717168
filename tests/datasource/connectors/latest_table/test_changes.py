"""A follower with `changes=full`: both images of updates, rows that were deleted, and what it refuses."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from kit.sink import Sink

from upstream.conf.errors import CheckpointError, FeedChangedError, OptionError, SchemaError, TableError
from upstream.core.rows.system_column import SYSTEM
from upstream.datasource.connectors.latest_table.changes import (
    CHANGES,
    BucketChange,
    CameFile,
    LeftRows,
    bucket_changes,
    images_of,
    keep_after,
)
from upstream.delta_format.deletion_vectors import DeletionVector
from upstream.delta_format.latest_table import APPLIED_KEY, BUCKET, HISTORY_PROPERTY, CommitChanges

from .following import Follower, gone, options_of, some

Row = Mapping[str, Any]


def changes(rows: Iterable[Row]) -> list[tuple[Any, ...]]:
    """The changes in the order of their numbers: what each one is, then its key, time and value."""
    ordered = sorted(rows, key=lambda row: row[SYSTEM]["seq"])
    return [(row["_change_type"], row["k"], row["t"], row["v"]) for row in ordered if not row[SYSTEM]["punctuation"]]


@pytest.mark.parametrize("kind", ["newest", "full"])
def test_what_comes_between_a_plan_and_its_reading_changes_nothing(make_first, tmp_path, monkeypatch, kind):
    first = make_first(**options_of("vectors", monkeypatch, str(tmp_path)))
    some(first, 0, *((key, 10, "a") for key in range(100)))
    follower = Follower(first.path, changes=kind)
    follower.rows()
    some(first, 1, (1, 11, "b"))
    end = follower.plan()
    before = follower.read(end)
    some(first, 2, (1, 12, "c"), (2, 12, "c"))
    assert first.log().vectors(), "rows were marked"
    DeltaTable(str(first.path)).create_checkpoint()
    follower.restart()
    assert follower.read(end) == before


@pytest.mark.parametrize("kind", ["newest", "full"])
def test_columns_of_any_name_a_key_in_a_struct_and_a_column_that_is_added(tmp_path, kind):
    """Deletions of the newest rows have the key where rows have it."""
    place = pa.struct([("id", pa.int64()), ("be side", pa.int64())])
    columns = pa.schema([("the place", place), ("t", pa.int64()), ("a,b", pa.string())])
    sink = Sink(tmp_path, columns, {"key": "`the place`.id", "eventTime": "t", "buckets": "1"})
    some(sink, 0, ({"id": 1, "be side": 5}, 10, "a"), ({"id": 2, "be side": 6}, 10, "b"))
    wider = dataclasses.replace(
        sink, columns=columns.append(pa.field("w", pa.int64())), options={**sink.options, "schemaEvolution": "add"}
    )
    some(wider, 1, ({"id": 2, "be side": 6}, 11, "b2", 7))
    follower = Follower(sink.path, changes=kind, punctuation="false")
    assert follower.options.key == ("`the place`.`id`",)
    assert {row["the place"]["id"]: row["a,b"] for row in follower.rows()} == {1: "a", 2: "b2"}
    some(wider, 2, ({"id": 1, "be side": 7}, 12, "c", 8))
    wider.batch(3, [gone(wider, [({"id": 2, "be side": 9}, 30, None, None)], 300)])
    found = [
        (row.get("_change_type"), row["the place"]["id"], row["t"], row["a,b"], row["w"], row[SYSTEM]["deleted"])
        for row in follower.rows()
    ]
    if kind == "newest":
        assert sorted(found, key=str) == [(None, 1, 12, "c", 8, False), (None, 2, 30, None, None, True)]
    else:
        assert found == [
            ("update_preimage", 1, 10, "a", None, False),
            ("update_postimage", 1, 12, "c", 8, False),
            ("delete", 2, 11, "b2", 7, True),
        ]


def test_a_condition_is_for_each_image_by_itself(first, follow, begun):
    follower = begun((1, 10, "in"), (2, 10, "out"), (3, 10, "in"), (4, 10, "out"), changes="full", where="v = 'in'")
    some(first, 1, (1, 11, "out"), (2, 11, "in"))
    first.batch(2, [gone(first, [(3, 30, None), (4, 30, None)], 200)])
    assert sorted(changes(follower.rows())) == [
        ("delete", 3, 10, "in"),
        ("update_postimage", 2, 11, "in"),
        ("update_preimage", 1, 10, "in"),
    ]
    # The column of changes is one like others: without preimages, the rows are those that the table took.
    newest = follow(changes="full", where="_change_type <> 'update_preimage'")
    assert len(newest.rows()) >= 2
    some(first, 3, (1, 12, "again"))
    assert changes(newest.rows()) == [("update_postimage", 1, 12, "again")]


def test_progress_is_that_of_the_rows_that_come(first, follow):
    first.batch(0, [first.rows([(1, 10, "a")]), first.punctuation(8)])
    follower = follow(changes="full")
    assert [row["t"] for row in follower.rows() if row[SYSTEM]["punctuation"]] == [8]
    first.batch(1, [first.rows([(1, 30, "b")], seq=100), first.punctuation(25)])
    rows = follower.rows()
    assert [row["t"] for row in rows if row[SYSTEM]["punctuation"]] == [25]
    assert changes(rows) == [("update_preimage", 1, 10, "a"), ("update_postimage", 1, 30, "b")]
    (state,) = follower.offset["progress"].values()
    assert state["received"] == 2, "the preimage did not arrive again"
    assert follow(changes="full", eventTime="v", timeFormat="").options.progress == "none"


def test_limits_count_rows_that_may_leave_and_files(first, begun):
    follower = begun(*((key, 10, "a") for key in range(20)), changes="full", maxRowsPerTrigger="4")
    for batch_id in range(1, 5):
        some(first, batch_id, (0, 10 * batch_id + 10, "b"))
    assert follower.plan()["position"]["version"] == 3
    assert len(changes(follower.rows())) == 8


def test_files_that_are_gone(first, follow, begun):
    follower = begun(changes="full")
    before = first.live_files()
    some(first, 1, (1, 11, "b"))
    end = follower.plan()
    for path in before:
        (first.path / path).unlink()
    with pytest.raises(FeedChangedError, match=r"version 2 .* is gone"):
        follower.read(end)
    # Without the rows that were replaced, what came is still there.
    assert len(follow().rows()) >= 1


def test_more_changes_than_the_commit_recorded(first, begun):
    follower = begun(*((key, 10, "a") for key in range(8)), changes="full")
    some(first, 1, *((key, 11, "b") for key in range(8)))
    end = follower.plan()
    end["ranges"] = [{**each, "span": 1} for each in end["ranges"]]
    with pytest.raises(FeedChangedError, match="recorded 1"):
        follower.read(end)


def test_wrong_words_and_what_goes_with_none_of_it(first, follow):
    some(first, 0, (1, 10, "a"))
    for message, options in (
        ("did you mean 'full'", {"changes": "ful"}),
        ("did you mean 'changes'", {"change": "full"}),
        ("coalesce=true", {"changes": "full", "coalesce": "true"}),
        ("watermark=bounded", {"changes": "full", "watermark": "bounded"}),
    ):
        with pytest.raises(OptionError, match=message):
            follow(**options)
    fix_schema = follow(changes="full").reading.connector.fix_schema
    with pytest.raises(SchemaError, match="_change_type"):
        fix_schema(pa.schema([("k", pa.int64()), ("t", pa.int64())]))
    with pytest.raises(SchemaError, match="no column 'w'"):
        fix_schema(pa.schema([("w", pa.int64()), ("_change_type", pa.string())]))


def test_a_checkpoint_goes_on_as_it_was_begun(first, begun):
    follower = begun()
    follower.given["changes"] = "full"
    follower.restart()
    with pytest.raises(CheckpointError, match="_change_type"):
        follower.plan()


def test_a_table_with_a_column_of_that_name(tmp_path):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("_change_type", pa.string())])
    sink = Sink(tmp_path, columns)
    some(sink, 0, (1, 10, "a"))
    with pytest.raises(SchemaError, match="'_change_type' of its own"):
        Follower(sink.path, changes="full")


EARLIER, LATER = DeletionVector("u", "a" * 20, 1, 34, 1), DeletionVector("u", "a" * 20, 50, 36, 2)


def action(kind: str, path: str, bucket: int | None, vector: DeletionVector | None = None, **more: Any) -> Any:
    values = {} if bucket is None else {"partitionValues": {BUCKET: str(bucket)}}
    marked = {} if vector is None else {"deletionVector": vector.to_json()}
    return {kind: {"path": path, "dataChange": True, **values, **marked, **more}}


def commit(rows: dict[str, int], deletions: dict[str, int]) -> Any:
    return {"commitInfo": {APPLIED_KEY: CommitChanges(0, rows, deletions).to_json()}}


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
    assert keep_after([metadata(**{HISTORY_PROPERTY: "latest 5"})], 1) == 5
    assert keep_after([metadata(**{HISTORY_PROPERTY: "latest"})], 5) == 1
    assert keep_after([metadata()], 5) == 1
    assert keep_after([metadata(**{HISTORY_PROPERTY: "all"})], 1) is None


# Of each key: whether it was there, whether it stays as it was, and whether a row of it came.
KEYS = st.lists(st.tuples(st.booleans(), st.booleans(), st.booleans()), max_size=12)


def numbers(codes: list[int]) -> Any:
    return np.array(codes, dtype=np.int64)


@given(keys=KEYS, seed=st.randoms(use_true_random=False))
def test_each_row_that_left_or_came_is_one_change(keys, seed):
    before = [key for key, (held, _, _) in enumerate(keys) if held]
    kept = [key for key, (held, stays, _) in enumerate(keys) if held and stays]
    fresh = [key for key, (held, stays, comes) in enumerate(keys) if comes and not (held and stays)]
    for codes in (before, kept, fresh):
        seed.shuffle(codes)
    expected: list[tuple[str, int]] = []
    for key in fresh:
        if key in before:
            expected += [("update_preimage", before.index(key)), ("update_postimage", len(before) + fresh.index(key))]
        else:
            expected.append(("insert", len(before) + fresh.index(key)))
    gone = sorted(before.index(key) for key in before if key not in kept and key not in fresh)
    expected += [("delete", place) for place in gone]
    found = images_of(numbers(before), numbers(kept), numbers(fresh))
    assert [(CHANGES[each], place) for each, place in zip(found.changes, found.places, strict=True)] == expected


def test_of_two_earlier_rows_of_a_key_both_leave():
    found = images_of(numbers([3, 3]), numbers([]), numbers([3]))
    assert sorted(zip(found.places.tolist(), (CHANGES[each] for each in found.changes), strict=True)) == [
        (0, "delete"),
        (1, "update_preimage"),
        (2, "update_postimage"),
    ]
