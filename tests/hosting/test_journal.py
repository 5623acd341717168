import dataclasses
import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import BUSES, DOMAINS, MOMENT, TRADE
from kit.failures import misused, unfit
from kit.registries import STREAMS, begun

from upstream.conf.errors import CheckpointError, EnvironmentMissingError
from upstream.hosting.journal import (
    Change,
    Journal,
    Settings,
    change_to,
    check_name,
    found,
    known_name,
    pinned,
    relation_of,
)
from upstream.hosting.registry import RegistryTexts
from upstream.operators.relations.plan.nodes import Stream


def test_versions_follow_each_other(tmp_path):
    journal = Journal(str(tmp_path / "cp"))
    assert journal.version() == 0
    changes = [Change("create", f"q{at}", "text") for at in range(12)]
    for at, change in enumerate(changes, 1):
        assert journal.put(at, change)
        assert journal.version() == at
    again = Journal(str(tmp_path / "cp"))
    assert again.version() == 12
    assert again.read(range(1, 13)) == changes
    assert again.read([7, 2]) == [changes[6], changes[1]]


def test_a_version_that_is_there_stays_and_what_others_write_is_seen(tmp_path):
    one, two = Journal(str(tmp_path / "cp")), Journal(str(tmp_path / "cp"))
    assert one.put(1, Change("drop", "q"))
    assert not two.put(1, Change("drop", "q")), "an equal change is still another's"
    assert two.version() == 1
    one.put(2, Change("drop", "b"))
    one.put(3, Change("drop", "c"))
    assert two.version() == 3


def test_of_many_writers_one_wins_each_version(tmp_path):
    checkpoint = str(tmp_path / "cp")

    def write(name: str) -> list[int]:
        journal, won = Journal(checkpoint), []
        while len(won) < 10:
            version = journal.version() + 1
            if journal.put(version, Change("drop", name)):
                won.append(version)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(write, "abcd"))
    assert sorted(version for versions in won for version in versions) == list(range(1, 41))
    changes = Journal(checkpoint).read(range(1, 41))
    for name, versions in zip("abcd", won, strict=True):
        assert [at for at, change in enumerate(changes, 1) if change.name == name] == versions


def test_files_of_others_are_no_versions_and_one_that_is_gone_is_an_error(tmp_path):
    journal = Journal(str(tmp_path / "cp"))
    journal.put(1, Change("drop", "q"))
    folder = tmp_path / "cp" / "queries" / "changes"
    for name in (".3.tmp", "00000000000000000009.json.crc", "notes.json"):
        (folder / name).write_text("")
    assert Journal(str(tmp_path / "cp")).version() == 1
    with pytest.raises(CheckpointError, match="no change 2"):
        journal.read([1, 2])


def test_a_disk_that_takes_no_change_is_told_in_words(tmp_path):
    """As root may write anywhere, a file in a folder's place stands for a full or a read-only disk."""
    (tmp_path / "cp").mkdir()
    (tmp_path / "cp" / "queries").write_text("")
    journal = Journal(str(tmp_path / "cp"))
    for write in (lambda: journal.put(1, Change("drop", "q")), lambda: journal.write_settings(Settings("/lake", 8))):
        with pytest.raises(CheckpointError, match=r"queries of .*/cp cannot be changed: .*make room or put the permis"):
            write()


def test_settings_come_back_and_it_is_known_whether_the_job_has_run(tmp_path):
    journal = Journal(str(tmp_path / "cp"))
    assert journal.settings() is None
    checkpoint = begun(tmp_path)
    assert journal.settings() == Settings("/lake", 8, STREAMS)
    assert not journal.started()
    journal.write_settings(Settings("/lake", 4, (TRADE,)))
    assert journal.settings().shards == 4
    (tmp_path / "cp" / "offsets").mkdir()
    (tmp_path / "cp" / "offsets" / ".0.crc").write_text("")
    assert not journal.started()
    (tmp_path / "cp" / "offsets" / "0").write_text("v1")
    assert journal.started()
    shutil.rmtree(checkpoint)
    assert Journal(checkpoint).version() == 0


def test_what_a_registry_in_a_store_lacks_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(EnvironmentMissingError, match="s3://without-extra/cp"):
        Journal("s3://without-extra/cp").put(1, Change("drop", "slow"))


CHANGES = st.builds(
    Change,
    st.sampled_from(["create", "alter", "activate", "deactivate", "drop", "view", "drop_view", "fail"]),
    st.text(),
    st.none() | st.text(),
    st.none() | st.floats(0.01, 100),
    st.none() | st.booleans(),
    st.none() | st.integers(1, 9),
    st.none() | st.text(),
    st.none() | st.integers(0),
)


@given(CHANGES)
def test_changes_come_back(change):
    assert Change.from_json(change.to_json()) == change


_DAMAGED = ["", "[]", "{}", '{"kind": "drop", "name": "q"', '{"kind": "drop", "name": "q"}']
_DAMAGED += ['{"kind": "rename", "name": "q", "nonce": "1"}']
_DAMAGED += ['{"kind": "drop", "name": "q", "colour": 1, "nonce": "1"}']


@pytest.mark.parametrize("content", _DAMAGED)
def test_what_cannot_be_read_is_an_error(content):
    with pytest.raises(CheckpointError, match="cannot be read"):
        Change.from_json(content.encode())


@pytest.mark.parametrize("name", ["q", "per_route", "2nd", "Größe", "a-b", "x" * 100])
def test_words_are_names(name):
    assert check_name(name, "a query") == name


@pytest.mark.parametrize(
    "name", ["", "7", "12345", "a/b", "a\\b", "..", ".q", "_q", "-q", "a b", "a=b", "a.b", "q\n", "é" * 51, None, 3]
)
def test_what_cannot_name_a_folder_is_refused(name):
    misused("cannot name a query", check_name, name, "a query")


def test_names_are_found_whatever_their_case_or_answered_with_near_ones():
    assert known_name("SLOW", ["slow"], "query") == "slow"
    misused(r"no query 'slwo'.*did you mean 'slow'", known_name, "slwo", ["slow", "per_route"], "query")
    misused("there are: per_route, slow", known_name, "zzz", ["slow", "per_route"], "query")
    misused("create a query first", known_name, "zzz", [], "query")
    assert found("PER_route", ["slow", "Per_Route"]) == "Per_Route"
    assert found("per", ["slow", "Per_Route"]) is None


NESTED = Stream(
    "nested",
    pa.schema(
        [
            pa.field("k", pa.string(), nullable=False),
            pa.field("p", pa.struct({"x": pa.float32(), "y": pa.list_(pa.decimal128(9, 2))})),
            pa.field("t", MOMENT),
        ]
    ),
    ("k",),
    "t",
    updates=True,
)


def test_streams_come_back_with_the_nonce_of_their_definition():
    settings = Settings("/lake", 8, (TRADE, BUSES, DOMAINS, NESTED))
    read = Settings.from_json(settings.to_json())
    assert read == settings
    assert read.nonce == settings.nonce
    assert [each.schema for each in read.streams] == [each.schema for each in settings.streams]
    assert read.catalog().names() == ["Domains", "buses", "nested", "trade"]
    one, two = Settings("/lake", 8), Settings("/lake", 8)
    assert one.nonce != two.nonce
    assert one.with_stream(TRADE).nonce not in (one.nonce, two.nonce)


def test_streams_are_added_and_replaced():
    settings = Settings("/lake", 8).with_stream(TRADE).with_stream(BUSES)
    assert settings.stream("trade") == TRADE
    assert settings.stream("TRADE") is None
    changed = settings.with_stream(dataclasses.replace(TRADE, key=("sym",)))
    assert changed.stream("trade").key == ("sym",)
    assert len(changed.streams) == 2


@pytest.mark.parametrize("spoil", [lambda text: text[:-9], lambda text: text.replace('"shards"', '"parts"')])
def test_a_damaged_file_is_an_error(spoil):
    text = Settings("/lake", 8, (TRADE,)).to_json().decode()
    with pytest.raises(CheckpointError, match="cannot be read"):
        Settings.from_json(spoil(text).encode())  # type: ignore[operator]
    broken = json.loads(text)
    broken["streams"][0]["schema"] = "AAAA"
    with pytest.raises(CheckpointError, match="cannot be read"):
        Settings.from_json(json.dumps(broken).encode())


def test_a_relation_comes_back_from_the_journal(tmp_path):
    place = str(tmp_path / "table")
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    write_deltalake(place, pa.table({"k": [1], "at": [None]}, schema=schema))
    relation = pinned("r", place)
    assert relation.static
    assert relation.table is not None
    assert (relation.table.location, relation.table.version) == (place, 0)
    # Where a row has no partner, all of its columns are null.
    assert relation.schema == pa.schema({"k": pa.int64(), "at": pa.timestamp("us", "UTC")})
    change = Change.from_json(change_to(relation).to_json())
    assert relation_of(change) == relation
    assert RegistryTexts().after([change]).relations == {"r": relation}
    assert RegistryTexts().after([change, Change("drop_table", "r")]).relations == {}


def test_a_table_of_nothing_but_own_columns_is_refused(tmp_path):
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"_upstream_bucket": [1]}))
    unfit("has no column", pinned, "r", place)


def test_what_is_damaged_is_told():
    with pytest.raises(CheckpointError, match="the relation 'r' of the registry cannot be read"):
        relation_of(Change("table", "r", stream={"name": "r"}))
    with pytest.raises(CheckpointError, match="a change of the registry cannot be read"):
        Change.from_json(Change("table", "r").to_json())


def test_each_query_that_begins_again_has_a_number_of_its_own(tmp_path):
    """Results go by these numbers, which grow; the table of a query that is dropped has no greater one."""
    write_deltalake(str(tmp_path), pa.table({"k": [1]}))
    relation = change_to(pinned("r", str(tmp_path)))
    changes = [Change("create", name, "SELECT k FROM r") for name in "abc"]
    state = RegistryTexts().after([relation, *changes, replace(relation, restarts=("a", "b", "c"))])
    assert {name: each.id for name, each in state.entries.items()} == {"a": 5, "b": 6, "c": 7}
    state = state.after([Change("drop", "c", delete_table=True), Change("create", "c", "SELECT k FROM r")])
    assert state.deleted == {"c": 7}
    assert (state.version, state.entries["c"].id) == (7, 8)
    assert state.after([Change("alter", "a", "SELECT 1")]).entries["a"].id == 9
