from dataclasses import replace

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from kit.failures import unfit

from upstream.conf.errors import CheckpointError
from upstream.hosting.registry.changes import Change, change_to, pinned, relation_of
from upstream.hosting.registry.state import RegistryTexts


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
    with pytest.raises(CheckpointError, match="the relation 'r' in the journal"):
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
