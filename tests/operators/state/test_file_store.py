"""A shard's state in files, beside a store in memory: any changes, any attempts, any file that is missing."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError
from upstream.operators.state import file_store
from upstream.operators.state.file_store import FileStore
from upstream.operators.state.store import DictStore
from upstream.storage.folder import TableFolder

PLACES = st.tuples(st.sampled_from(["head", "rows"]), st.integers(0, 6))
CHANGES = st.lists(st.tuples(PLACES, st.none() | st.binary(max_size=400)), max_size=8)


@pytest.fixture(autouse=True)
def _forgotten():
    file_store._known.clear()


def apply(store, changes):
    for place, value in changes:
        if value is None:
            store.remove(*place)
        else:
            store.put(*place, value)


def contents(store):
    places = [(kind, page) for kind in ("head", "rows") for page in range(7)]
    return {place: value for place in places if (value := store.get(*place)) is not None}


@settings(deadline=None)
@given(st.lists(st.tuples(CHANGES, CHANGES, st.booleans()), max_size=12))
def test_each_batch_begins_with_the_values_of_the_attempt_before_it_that_counts(tmp_path_factory, batches):
    folder = TableFolder(str(tmp_path_factory.mktemp("state")))
    names, same = (), DictStore()
    for changes, lost, forgets in batches:
        other = FileStore(folder, names)
        apply(other, lost)
        other.write("0-0-1")  # an attempt that does not count
        store = FileStore(folder, names)
        apply(store, changes)
        apply(same, changes)
        assert contents(store) == same.values
        names = store.write("0-0-1")
        assert contents(store) == same.values
        if forgets:
            file_store._known.clear()
        assert contents(FileStore(folder, names)) == same.values


def test_a_state_has_few_files_and_little_that_is_superseded(tmp_path):
    folder, names, written, before = TableFolder(str(tmp_path)), (), 0, 0
    for batch in range(300):
        store = FileStore(folder, names)
        store.put("head", 0, b"h" * 50)
        store.put("rows", batch, b"x" * 1000)
        store.put("rows", batch % 7, b"y" * 1000)
        names = store.write("0-0-1")
        written += os.path.getsize(tmp_path / names[-1])
        before = max(before, len(names))
    assert before <= 12
    assert sum(os.path.getsize(tmp_path / name) for name in names) < 3 * 300 * 1000
    assert written < 300 * 2000 * 10, "each value is copied as often as the state doubles"


def test_a_large_file_stays_until_most_of_it_is_superseded(tmp_path, monkeypatch):
    monkeypatch.setattr(file_store, "_LARGE", 1000)
    store = FileStore(TableFolder(str(tmp_path)))
    for page in range(4):
        store.put("rows", page, b"x" * 1000)
    (large,) = store.write("0-0-0")
    store.put("rows", 0, b"y" * 3000)
    assert store.write("0-0-1")[0] == large
    for page in (1, 2):
        store.put("rows", page, b"y" * 3000)
    assert large not in store.write("0-0-2")


def test_nothing_changed_writes_nothing(tmp_path):
    store = FileStore(TableFolder(str(tmp_path)))
    assert store.write("0-0-0") == ()
    store.put("head", 0, b"1")
    names = store.write("0-0-0")
    assert FileStore(TableFolder(str(tmp_path)), names).write("0-0-1") == names
    assert sorted(os.listdir(tmp_path)) == sorted(names)


@pytest.mark.parametrize("damage", ["missing", "cut", "index", "empty"])
def test_a_file_that_is_damaged_is_named(tmp_path, damage):
    store = FileStore(TableFolder(str(tmp_path)))
    store.put("rows", 1, b"x" * 100)
    (name,) = store.write("0-0-0")
    file_store._known.clear()
    place, content = tmp_path / name, (tmp_path / name).read_bytes()
    if damage == "missing":
        place.unlink()
    else:
        place.write_bytes({"cut": content[:-1], "index": content.replace(b"rows", b"rose"), "empty": b""}[damage])
    with pytest.raises(CheckpointError, match=name):
        FileStore(TableFolder(str(tmp_path)), (name,))
