"""Rows with what a table has for them, against a look-up row by row."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import FeedChangedError, SchemaError, TableError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE, system_array
from upstream.operators.joins import pair_kernel
from upstream.operators.tables.lookup import (
    Version,
    columns_of_table,
    in_spark_types,
    index_at,
    indexed,
    joined,
    latest_version,
    planned,
)


def plan(kinds, how="left"):
    names = [f"k{at}" for at in range(len(kinds))]
    keys = [pa.field(name, kind) for name, kind in zip(names, kinds, strict=True)]
    before = pa.schema([*keys, ("n", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])
    table = pa.schema([*keys, ("found", pa.int64())])
    return planned(before, table, "there", {name: name for name in names}, how, None, "_table", {})


def frame(join, keys, marks):
    n = len(keys)
    columns = [
        pa.array([None if each is None else each[at] for each in keys], join.before.field(at).type)
        for at in range(len(join.on))
    ]
    numbers = np.arange(n)
    system = system_array(source="f", seq=numbers, arrival_us=numbers, deleted=[mark == "d" for mark in marks])
    fields = [pa.array([mark == "p" for mark in marks], pa.bool_()), *system.flatten()[1:]]
    system = pa.StructArray.from_arrays(fields, fields=list(system.type))
    return pa.table([*columns, pa.array(numbers), system], schema=join.before)


VALUES = st.integers(0, 5)


@st.composite
def cases(draw):
    kinds = draw(
        st.sampled_from([(pa.int64(),), (pa.string(),), (pa.int64(), pa.string()), (pa.timestamp("us", "UTC"),)])
    )

    def key():
        values = [draw(VALUES) for _ in kinds]
        if draw(st.integers(0, 5)) == 0:
            values[draw(st.integers(0, len(values) - 1))] = None
        return tuple(
            str(value) if value is not None and kind == pa.string() else value
            for value, kind in zip(values, kinds, strict=True)
        )

    keys = [key() for _ in range(draw(st.integers(0, 12)))]
    marks = [draw(st.sampled_from("rrrpd")) for _ in keys]
    return kinds, keys, marks, [key() for _ in range(draw(st.integers(0, 8)))], draw(st.integers(1, 5))


@given(cases(), st.sampled_from(["inner", "left", "semi", "anti"]))
def test_each_row_gets_the_row_of_its_key_and_keeps_its_place(case, how):
    kinds, keys, marks, table_keys, size = case
    join = plan(kinds, how)
    if join.one:
        table_keys = list(dict.fromkeys(table_keys))
    columns = [[each[at] for each in table_keys] for at in range(len(kinds))]
    table = pa.table([*columns, list(range(len(table_keys)))], schema=join.table if join.one else pa.schema(
        [*join.table, ("found", pa.int64())]
    )).select(join.table.names)  # fmt: skip
    known = {key: at for at, key in enumerate(table_keys) if None not in key}
    rows = frame(join, keys, marks)
    result = pa.Table.from_batches(
        list(joined(iter(rows.to_batches(max_chunksize=size)), indexed(table, join), join)), join.schema
    )
    expected = []
    for number, (key, mark) in enumerate(zip(keys, marks, strict=True)):
        partner = known.get(key)
        passes = mark in "pd"
        if passes or how == "left" or (partner is None if how == "anti" else partner is not None):
            expected.append((number, None if passes or not join.one else partner))
    found = result.column("found").to_pylist() if join.one else [None] * result.num_rows
    assert list(zip(result.column("n").to_pylist(), found, strict=True)) == expected


def test_keys_with_one_number_are_told_apart(monkeypatch):
    join = plan((pa.string(),))
    monkeypatch.setattr(pair_kernel, "spark_hash", lambda columns: np.zeros(len(columns[0]), dtype=np.int32))
    table = pa.table([["a", "b", None], [1, 2, 3]], schema=join.table)
    rows = frame(join, [("b",), ("c",), ("a",), (None,)], "rrrr")
    (batch,) = joined(iter(rows.to_batches()), indexed(table, join), join)
    assert batch.column(batch.schema.get_field_index("found")).to_pylist() == [2, None, 1, None]


def test_a_key_in_several_rows_is_named():
    join = plan((pa.int64(), pa.string()))
    table = pa.table([[1, 1, 1, None, None], ["a", "b", "a", "c", "c"], [1, 2, 3, 4, 5]], schema=join.table)
    with pytest.raises(TableError, match="k0 1, k1 'a'"):
        indexed(table, join)
    assert len(indexed(table.select(["k0", "k1"]), plan((pa.int64(), pa.string()), "anti")).numbers) == 3


def test_a_null_beside_a_great_number_does_not_round_it():
    join = plan((pa.int64(),))
    great = 2**53 + 1
    table = pa.table([[great - 1, great, -(2**63)], [1, 2, 3]], schema=join.table)
    rows = frame(join, [(great,), (None,)], "rr")
    (batch,) = joined(iter(rows.to_batches()), indexed(table, join), join)
    assert batch.column(batch.schema.get_field_index("found")).to_pylist() == [2, None]


STREAM = pa.schema([("k", pa.string()), ("id", pa.int64()), ("v", pa.float64()), pa.field(SYSTEM, SYSTEM_TYPE)])
TABLE = pa.schema([
    pa.field("id", pa.int64(), nullable=False), ("v", pa.string()), pa.field("w", pa.int32(), nullable=False),
    ("_upstream_seq", pa.int64()),
])  # fmt: skip


def named_plan(on=None, how="left", columns=None, suffix="_table", **storage):
    return planned(STREAM, TABLE, "there", on or {"id": "id"}, how, columns, suffix, storage)


def test_all_columns_but_those_joined_by_and_our_own_are_added_before_the_system_column():
    found = named_plan()
    assert found.schema.names == ["k", "id", "v", "v_table", "w", SYSTEM]
    assert found.schema.field("w").nullable
    assert found.columns == (("v_table", "v"), ("w", "w"))
    assert found.table.names == ["id", "v", "w"]
    assert named_plan(columns=["w"]).table.names == ["id", "w"]
    assert named_plan(columns=["id"]).schema.names == ["k", "id", "v", "id_table", SYSTEM]
    assert named_plan(columns=["_upstream_seq"]).schema.names == ["k", "id", "v", "_upstream_seq", SYSTEM]
    assert named_plan(how="semi").schema == STREAM
    assert named_plan(how="anti").table.names == ["id"]
    with pytest.raises(SchemaError, match="int64 and w of type int32"):
        named_plan(on={"id": "w"})
    assert named_plan(on={"k": "v"}, columns=["v"], suffix="_x").schema.names[-2] == "v_x"
    assert [named_plan(how=how).one for how in ("inner", "left", "semi", "anti")] == [True, True, False, False]


def test_text_and_representation_have_no_secret():
    found = named_plan(on={"id": "id"}, secret_key="s3cr3t")
    assert found.text == "join with the table there, on id, how left"
    assert "s3cr3t" not in repr(found)
    assert found.storage == (("secret_key", "s3cr3t"),)
    assert hash(found) == hash(named_plan(secret_key="s3cr3t"))


BEFORE = pa.schema([("k", pa.string()), ("id", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def write(place, **names):
    table = pa.table({"id": pa.array([int(each[1:]) for each in names], pa.int64()), "name": list(names.values())})
    write_deltalake(place, table, mode="overwrite")


def reading_plan(place):
    return planned(BEFORE, columns_of_table(place, {}), place, {"id": "id"}, "left", None, "_table", {})


def rows(found):
    return dict(zip(found.table.column("id").to_pylist(), found.table.column("name").to_pylist(), strict=True))


def test_every_version_is_read_as_it_was(tmp_path):
    place = str(tmp_path / "table")
    write(place, r2="two", r1="one")
    first = latest_version(place, {})
    write(place, r1="uno", r3="tres")
    DeltaTable(place).delete("id = 3")
    second = latest_version(place, {})
    assert (first.number, second.number) == (0, 2)
    assert first.table == second.table == str(DeltaTable(place).metadata().id)
    assert rows(index_at(reading_plan(place), first)) == {1: "one", 2: "two"}
    assert rows(index_at(reading_plan(place), second)) == {1: "uno"}
    assert index_at(reading_plan(place), second) is index_at(reading_plan(place), second)  # read once in a worker


def test_columns_have_the_types_of_spark(tmp_path):
    place = str(tmp_path / "table")
    write(place, r1="one")
    assert columns_of_table(place, {}) == pa.schema([("id", pa.int64()), ("name", pa.string())])
    given = pa.schema([("a", pa.large_string()), ("b", pa.timestamp("us", "UTC")), ("c", pa.int8())])
    assert in_spark_types(given).types == [pa.string(), pa.timestamp("us", "UTC"), pa.int8()]


def test_what_is_gone_is_told_with_what_to_do(tmp_path):
    place = str(tmp_path / "table")
    with pytest.raises(TableError, match="no Delta table"):
        latest_version(place, {})
    with pytest.raises(TableError, match="no Delta table"):
        columns_of_table(place, {})
    write(place, r1="one")
    version, join = latest_version(place, {}), reading_plan(place)
    with pytest.raises(FeedChangedError, match="version 5"):
        index_at(join, Version(version.table, 5))
    with pytest.raises(FeedChangedError, match="created again"):
        index_at(join, Version("another", 0))
    write(place, r1="uno")
    os.remove(DeltaTable(place, 0).file_uris()[0].removeprefix("file://"))
    with pytest.raises(FeedChangedError, match=r"version 0.*VACUUM"):
        index_at(join, version)
    assert rows(index_at(join, Version(version.table, 1))) == {1: "uno"}
    write_deltalake(place, pa.table({"id": [1]}), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(TableError, match=r"version 2.*name"):
        index_at(join, Version(version.table, 2))
    shutil.rmtree(place)
    with pytest.raises(TableError, match="no Delta table"):
        index_at(join, Version(version.table, 3))
