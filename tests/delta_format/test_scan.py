"""Tables as frames of Polars, at the version at which they are opened."""

import datetime as dt
import json
import os

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from upstream.conf.errors import TableError
from upstream.delta_format.column_mapping import with_field_ids
from upstream.delta_format.scan import open_parquet, open_table, read_columns, scan_table
from upstream.operators.tables.lookup import pinned_table


def test_rows_are_those_of_the_version(tmp_path):
    place = str(tmp_path / "table")
    write_deltalake(place, pa.table({"id": [1, 2]}))
    write_deltalake(place, pa.table({"id": [3]}), mode="append")
    for version, rows in ((0, [1, 2]), (1, [1, 2, 3])):
        assert sorted(scan_table(DeltaTable(place, version)).collect()["id"].to_list()) == rows


_LATE = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.timezone.utc)
_STRUCT = pa.struct([("c5", pa.string()), ("c4", pa.int32())])
_ROWS = pa.table(
    {
        "c1": pa.array([1, 2], pa.int32()),
        "c2": pa.array([{"c5": "x", "c4": 7}, None], _STRUCT),
        "c6": pa.array([[{"c7": 5}], None], pa.list_(pa.struct([("c7", pa.int32())]))),
        "c8": pa.array([_LATE, None], pa.timestamp("us", "UTC")),
    }
)
_EXPECTED = [
    {"id": 1, "one": {"a": 7, "added": None}, "many": [{"x": 5}], "at": _LATE, "part": 3, "new": None},
    {"id": 2, "one": None, "many": None, "at": None, "part": 3, "new": None},
]


def _field(name, kind, number, mode):
    physical = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"}
    return {"name": name, "type": kind, "nullable": True, "metadata": physical if mode else {}}


def _foreign(place, features=(), mode=None):
    """Write a table as other writers do: columns renamed, added and dropped, one widened, times in nanoseconds."""
    file, log = place / "part.parquet", place / "_delta_log"
    log.mkdir(parents=True)
    names = ["c1", "c2", "c6", "c8"] if mode else ["id", "one", "many", "at"]
    rows = _ROWS.rename_columns(names)
    if mode == "id":  # the numbers alone count
        numbers = {path: number for number, path in ((1, ("c1",)), (2, ("c2",)), (5, ("c2", "c5")), (4, ("c2", "c4")),
                   (6, ("c6",)), (7, ("c6", "element", "c7")), (8, ("c8",)))}  # fmt: skip
        rows = rows.cast(with_field_ids(rows.schema, numbers)).rename_columns([f"old {name}" for name in names])
    elif not mode:
        plain = pa.struct([("b", pa.string()), ("a", pa.int32())])
        rows = rows.set_column(1, "one", rows["one"].combine_chunks().view(plain))
        many = rows["many"].combine_chunks().view(pa.list_(pa.struct([("x", pa.int32())])))
        rows = rows.set_column(2, "many", many)
    pq.write_table(rows, file, use_deprecated_int96_timestamps=True)
    inner = {"type": "struct", "fields": [_field("a", "integer", 4, mode), _field("added", "string", 40, mode)]}
    many = {"type": "struct", "fields": [_field("x", "integer", 7, mode)]}
    fields = [
        _field("id", "long" if "typeWidening" in features else "integer", 1, mode), _field("one", inner, 2, mode),
        _field("many", {"type": "array", "elementType": many, "containsNull": True}, 6, mode),
        _field("at", "timestamp", 8, mode), _field("part", "integer", 9, mode), _field("new", "double", 10, mode),
    ]  # fmt: skip
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    if features:
        protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
        protocol |= {"readerFeatures": list(features), "writerFeatures": list(features)}
    metadata = {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": ["part"]}
    metadata |= {"schemaString": json.dumps({"type": "struct", "fields": fields}), "createdTime": 0}
    metadata |= {"configuration": {"delta.columnMapping.mode": mode} if mode else {}}
    added = {"path": file.name, "partitionValues": {"c9" if mode else "part": "3"}, "size": file.stat().st_size}
    added |= {"modificationTime": 0, "dataChange": True}
    actions = [{"protocol": protocol}, {"metaData": metadata}, {"add": added}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return place


@pytest.mark.parametrize(
    ("features", "mode"),
    [
        ((), None), ((), "name"), ((), "id"), (["columnMapping"], "name"), (["columnMapping", "typeWidening"], "id"),
        (["typeWidening"], None), (["vacuumProtocolCheck"], None), (["v2Checkpoint", "columnMapping"], "name"),
        (["vacuumProtocolCheck", "deletionVectors", "columnMapping"], "name"),
    ],
)  # fmt: skip
def test_a_table_of_others_reads_as_its_format_says(tmp_path, features, mode):
    rows = scan_table(DeltaTable(_foreign(tmp_path / "a table", features, mode)))
    assert rows.collect().to_dicts() == _EXPECTED
    assert rows.select(pl.len()).collect().item() == 2
    assert rows.filter(pl.col("id") > 1).select("at", "id").collect().rows() == [(None, 2)]
    assert rows.select("new", "part").head(1).collect().rows() == [(None, 3)]


@pytest.mark.parametrize(
    ("features", "kind", "words"),
    [
        (["collations"], "string", "collations"),
        (["variantType"], {"type": "struct", "fields": [{"name": "in", "type": "variant"}]}, "VARIANT: v.*to_json"),
        (["deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"], "string", "together.*DROP FEATURE"),
    ],
)
def test_a_table_that_cannot_be_read_right_is_refused(tmp_path, features, kind, words):
    field = {"name": "v", "type": kind, "nullable": True, "metadata": {}}
    if isinstance(kind, dict):
        kind["fields"][0] |= {"nullable": True, "metadata": {}}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    metadata = {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "createdTime": 0}
    metadata |= {"schemaString": json.dumps({"type": "struct", "fields": [field]}), "configuration": {}}
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n" + json.dumps({"metaData": metadata}))
    with pytest.raises(TableError, match=words):
        pinned_table(str(tmp_path), {})


@pytest.mark.parametrize("damage", ["cut", "pipe"])
@pytest.mark.parametrize("reader", ["scan", "read"])
def test_a_data_file_that_is_cut_or_a_pipe_is_named(tmp_path, damage, reader):
    write_deltalake(str(tmp_path / "t"), pa.table({"k": [1, 2]}))
    table = open_table(str(tmp_path / "t"))
    (path,) = (tmp_path / "t").glob("*.parquet")
    content = path.read_bytes()
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        os.mkfifo(path)
    with pytest.raises(TableError, match=path.name):
        scan_table(table).collect() if reader == "scan" else read_columns(table, None)
    if damage == "pipe":
        with pytest.raises(OSError, match=path.name):
            open_parquet(str(path))
