import os
import shutil

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from upstream.conf.errors import FeedChangedError, TableError
from upstream.core.rows.system_column import SYSTEM, SYSTEM_TYPE
from upstream.operators.tables.lookup import (
    Version,
    columns_of_table,
    in_spark_types,
    index_at,
    latest_version,
    planned,
)

BEFORE = pa.schema([("k", pa.string()), ("id", pa.int64()), pa.field(SYSTEM, SYSTEM_TYPE)])


def write(place, **names):
    table = pa.table({"id": pa.array([int(each[1:]) for each in names], pa.int64()), "name": list(names.values())})
    write_deltalake(place, table, mode="overwrite")


def plan(place):
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
    assert rows(index_at(plan(place), first)) == {1: "one", 2: "two"}
    assert rows(index_at(plan(place), second)) == {1: "uno"}
    assert index_at(plan(place), second) is index_at(plan(place), second)  # read once in a worker


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
    version, join = latest_version(place, {}), plan(place)
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
