import dataclasses
import json
from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import BUSES, DOMAINS, MOMENT, TRADE
from kit.failures import misused, unfit

from upstream.conf.errors import CheckpointError
from upstream.hosting.journal import (
    Change,
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

CHANGES = st.builds(
    Change,
    st.sampled_from(["register", "alter", "activate", "deactivate", "drop", "view", "drop_view", "fail"]),
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
    misused("register a query first", known_name, "zzz", [], "query")
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
    assert RegistryTexts().after([change, Change("drop_relation", "r")]).relations == {}


def test_a_table_of_nothing_but_own_columns_is_refused(tmp_path):
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"_upstream_bucket": [1]}))
    unfit("has no column", pinned, "r", place)


def test_what_is_damaged_is_told():
    with pytest.raises(CheckpointError, match="the relation 'r' of the registry cannot be read"):
        relation_of(Change("relation", "r", stream={"name": "r"}))
    with pytest.raises(CheckpointError, match="a change of the registry cannot be read"):
        Change.from_json(Change("relation", "r").to_json())


def test_each_query_that_begins_again_has_a_number_of_its_own(tmp_path):
    """Results go by these numbers, which grow; the table of a query that is dropped has no greater one."""
    write_deltalake(str(tmp_path), pa.table({"k": [1]}))
    relation = change_to(pinned("r", str(tmp_path)))
    changes = [Change("register", name, "SELECT k FROM r") for name in "abc"]
    state = RegistryTexts().after([relation, *changes, replace(relation, restarts=("a", "b", "c"))])
    assert {name: each.id for name, each in state.entries.items()} == {"a": 5, "b": 6, "c": 7}
    state = state.after([Change("drop", "c", delete_table=True), Change("register", "c", "SELECT k FROM r")])
    assert state.deleted == {"c": 7}
    assert (state.version, state.entries["c"].id) == (7, 8)
    assert state.after([Change("alter", "a", "SELECT 1")]).entries["a"].id == 9
