"""The index of a data file: it finds every row of a wanted key, is rebuilt when missing, and keeps to its limit."""

import os
import pickle
import shutil
import stat
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.conf.errors import TableError
from upstream.sink.table import key_index
from upstream.sink.table.key_index import KeyIndex, key_hashes

GIGABYTE = 1 << 30


def never() -> pa.Table:
    raise AssertionError("the index is there")


def keyed(keys: list[Any], kind: pa.DataType) -> pa.Table:
    return pa.table({"k": pa.array(keys, kind), "t": pa.array(range(len(keys)), pa.int64())})


KINDS = st.sampled_from(
    [
        pa.int64(), pa.int8(), pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(), pa.binary(),
        pa.decimal128(20, 3), pa.float64(), pa.struct([("a", pa.int32()), ("b", pa.string())]),
    ]
)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=KINDS, held=st.sets(st.integers(-100, 100)), wanted=st.sets(st.integers(-100, 100)), few=st.booleans())
def test_every_row_of_a_wanted_key_is_found(tmp_path, monkeypatch, kind, held, wanted, few):
    def made(numbers: set[int]) -> pa.Table:
        if pa.types.is_struct(kind):
            return keyed([{"a": each % 3, "b": str(each)} for each in numbers], kind)
        text = pa.types.is_string(kind) or pa.types.is_binary(kind)
        column = pa.array([str(each) for each in numbers] if text else list(numbers), None if text else pa.int32())
        narrow = column if text or pa.types.is_decimal(kind) or kind == pa.date32() else column.cast(pa.int64())
        return keyed(narrow.cast(kind).to_pylist(), kind)

    rows, few_rows = made(held), made(wanted)
    # With few hashes most keys have another one's: the rows of both are given, and whoever asks compares.
    whole = key_hashes
    with monkeypatch.context() as patched:
        if few:
            patched.setattr(key_index, "key_hashes", lambda table, key: whole(table, key) % 3)
        index = KeyIndex(f"/table/{few}-{hash(frozenset(held))}-{kind}", ["k"], str(tmp_path), GIGABYTE)
        index.put("part", rows)
        hashes = np.unique(key_index.key_hashes(few_rows, ["k"]))
        found = pickle.loads(pickle.dumps(index)).lookup("part", hashes, never)
    assert len(set(found.positions.tolist())) == len(found.positions)
    assert rows.take(found.positions).equals(found.rows)
    shared = {str(key) for key in rows.column("k").to_pylist()} & {str(key) for key in few_rows.column("k").to_pylist()}
    met = {str(key) for key in found.rows.column("k").to_pylist()}
    assert shared <= met
    if not few:
        assert shared == met


def test_zeros_and_nans_of_either_sign_are_one_key():
    table = pa.table({"k": pa.array([0.0, -0.0, float("nan"), -float("nan")])})
    hashes = key_hashes(table, ["k"])
    assert hashes[0] == hashes[1] != hashes[2] == hashes[3]


@pytest.mark.parametrize("name", ["k", "hash", "position"])  # the latter two are its own columns
def test_an_index_that_is_gone_is_made_again(tmp_path, name):
    rows = pa.table({name: [3, 1, 2], "t": [0, 1, 2]})
    index = KeyIndex("/table", [name], str(tmp_path), GIGABYTE)
    assert index.lookup("part", np.array([1]), lambda: rows).positions.tolist() == [1]
    assert index.lookup("part", np.array([2]), never).rows.to_pylist() == [{name: 2, "t": 2}]
    (made,) = tmp_path.rglob("*.arrow")
    made.unlink()
    another = KeyIndex("/table", [name], str(tmp_path), GIGABYTE)
    assert another.lookup("part", np.array([3, 4]), lambda: rows).positions.tolist() == [0]


def test_what_nobody_needs_is_removed_and_the_least_used_beyond_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(key_index, "_TIDY_EVERY", 1)
    rows = keyed(list(range(1000)), pa.int64())
    index = KeyIndex("/table", ["k"], str(tmp_path), 100_000)
    for at, path in enumerate(["old", "gone", "a", "b"]):
        index.put(path, rows)
        (made,) = (place for place in tmp_path.rglob("*.arrow") if time.time() - place.stat().st_mtime < 100)
        os.utime(made, (time.time() - 5000 + at,) * 2)
    index.put("staged", rows)
    sizes = [place.stat().st_size for place in tmp_path.rglob("*.arrow")]
    assert len(sizes) == 5
    monkeypatch.setattr(index, "_limit", 2 * max(sizes) + 100)
    index.tidy(["old", "a", "b"])
    assert len(list(tmp_path.rglob("*.arrow"))) == 2  # gone is not named, and old was needed longest ago, then a
    for path in ("b", "staged"):
        KeyIndex("/table", ["k"], str(tmp_path), 1).lookup(path, np.array([1]), never)


def test_what_an_earlier_boot_has_left_is_not_used(tmp_path, monkeypatch):
    boots = ["6f1ed002-ab5f-4c2f-8a37-000000000000", "6f1ed002-ab5f-4c2f-8a37-111111111111"]
    monkeypatch.setattr(key_index, "boot_name", lambda: boots[0])
    KeyIndex("/table", ["k"], str(tmp_path), GIGABYTE).put("part", keyed([1], pa.int64()))
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(key_index, "boot_name", lambda: boots[1])
    found = KeyIndex("/table", ["k"], str(tmp_path), GIGABYTE).lookup(
        "part", np.array([2]), lambda: keyed([2], pa.int64())
    )
    assert found.positions.tolist() == [0]
    assert sorted(place.name[-36:] for place in tmp_path.iterdir()) == [boots[1], "mine"]


def test_a_folder_that_others_may_write_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(key_index.tempfile, "gettempdir", lambda: str(tmp_path))
    index = KeyIndex("/table", ["k"], None, GIGABYTE)
    index.put("part", keyed([1], pa.int64()))
    (home,) = tmp_path.iterdir()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    home.chmod(0o777)
    with pytest.raises(TableError, match="others may write"):
        KeyIndex("/table", ["k"], None, GIGABYTE).put("part", keyed([1], pa.int64()))


def test_a_disk_without_room_is_reported(tmp_path):
    index = KeyIndex("/table", ["k"], str(tmp_path), GIGABYTE)
    index.put("part", keyed([1], pa.int64()))
    (home,) = tmp_path.iterdir()
    shutil.rmtree(home)
    with pytest.raises(TableError, match="indexLocation"):
        index.put("part", keyed([1], pa.int64()))
