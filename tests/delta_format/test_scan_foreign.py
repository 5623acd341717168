"""Odd and damaged tables of other programs: each reads as Spark reads it, or is refused in words."""

import datetime as dt
import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from upstream import LatestTable
from upstream.conf.errors import TableError
from upstream.delta_format.deletion_vectors import encode_vector, pack_vectors

_FEATURES = ["deletionVectors"]
_VECTORS = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": _FEATURES, "writerFeatures": _FEATURES}


def _foreign(table: Path, file: Path, rows: pa.Table, kinds: dict[str, Any], **partition: str) -> list[dict[str, Any]]:
    """Write a table of one file, of whose rows the first is dead, with an absolute path if it is elsewhere."""
    file.parent.mkdir(parents=True, exist_ok=True)
    (table / "_delta_log").mkdir(parents=True)
    pq.write_table(rows, file)
    place, content, vectors = pack_vectors([(encode_vector(np.arange(rows.num_rows) == 0), 1)], "v")
    (table / place).parent.mkdir()
    (table / place).write_bytes(content)
    fields = [{"name": name, "nullable": True, "metadata": {}, **kind} for name, kind in kinds.items()]
    is_inside = file.is_relative_to(table)
    path = quote(str(file.relative_to(table) if is_inside else file), safe="/=")
    added = {"path": path if is_inside else f"file:{path}", "partitionValues": partition, "size": file.stat().st_size}
    added |= {"modificationTime": 0, "dataChange": True, "deletionVector": vectors[0].to_json()}
    added["stats"] = json.dumps({"numRecords": rows.num_rows})
    metadata = {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": list(partition)}
    metadata |= {"schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {}}
    actions = [{"protocol": _VECTORS}, {"metaData": metadata}, {"add": added}]
    (table / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    found = [LatestTable(table).to_arrow().to_pylist(), LatestTable(table).to_polars().to_dicts()]
    assert found[0] == found[1]
    return found[0]


_ID = {"type": "long"}


@pytest.mark.parametrize(
    ("file", "partition"),
    [
        ("table/p=a b%25/f.parquet", {"p": "a b%"}),
        ("other/p=a b%25/f.parquet", {"p": "a b%"}),
        ("table/p=x/f.parquet", {"p": "x"}),
        ("other/f.parquet", {}),
    ],
)
def test_deleted_rows_stay_away_wherever_the_file_is(tmp_path, file, partition):
    kinds = {"id": _ID} | {name: {"type": "string"} for name in partition}
    rows = _foreign(tmp_path / "table", tmp_path / file, pa.table({"id": [1, 2, 3]}), kinds, **partition)
    assert rows == [{"id": 2, **partition}, {"id": 3, **partition}]


def test_char_is_padded_and_a_partition_may_be_binary(tmp_path):
    char = {"type": "string", "metadata": {"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}}
    kinds = {"c": char, "b": {"type": "binary"}}
    rows = _foreign(tmp_path / "t", tmp_path / "t/f.parquet", pa.table({"c": ["x", "y", None]}), kinds, b="A")
    assert rows == [{"c": "y  ", "b": b"A"}, {"c": None, "b": b"A"}]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.date32(), dt.date(1500, 1, 1)),
        (pa.timestamp("us", "UTC"), dt.datetime(1850, 1, 1, tzinfo=dt.timezone.utc)),
        (pa.list_(pa.struct([("d", pa.date32())])), [{"d": dt.date(1, 1, 1)}]),
        (pa.map_(pa.string(), pa.date32()), [("k", dt.date(1, 1, 1))]),
    ],
)
@pytest.mark.parametrize("is_old", [True, False])
def test_days_of_the_calendar_before_spark_3_are_refused(tmp_path, kind, value, is_old):
    rows = pa.table({"d": pa.array([None, value], kind)})
    table, file = str(tmp_path), tmp_path / "old.parquet"
    write_deltalake(table, rows)
    name = next(name for name in os.listdir(table) if name.endswith(".parquet"))
    pq.write_table(rows.replace_schema_metadata({"org.apache.spark.legacyDateTime": ""} if is_old else {}), file)
    log = tmp_path / "_delta_log" / f"{0:020}.json"
    size = (tmp_path / name).stat().st_size
    log.write_text(log.read_text().replace(f'"size":{size}', f'"size":{file.stat().st_size}'))
    file.replace(tmp_path / name)
    for read in (LatestTable(table).to_arrow, LatestTable(table).to_polars):
        if is_old:
            with pytest.raises(TableError, match="calendar of Spark before version 3"):
                read()
        else:
            assert len(read()) == 2


def _entry(number: int) -> str:
    return f"_delta_log/{number:020}.json"


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda table: (table / _entry(0)).unlink(), "begins with version 1, and no checkpoint"),
        (lambda table: (table / _entry(1)).unlink(), "gap.*restore"),
        (lambda table: _cut(table / _entry(2)), "Json error.*restore"),
        (lambda table: os.mkfifo(table / _entry(3)), "3.json is no file"),
        (lambda table: (table / _entry(3)).mkdir(), "3.json is no file"),
        (lambda table: [each.unlink() for each in table.glob("*.parquet")], "cannot be read.*restore"),
        (lambda table: [_cut(each) for each in table.glob("*.parquet")], "cannot be read.*restore"),
    ],
)
def test_a_damaged_table_is_an_error_in_words(tmp_path, damage, words):
    for number in range(3):
        write_deltalake(tmp_path, pa.table({"id": [number]}), mode="append")
    damage(tmp_path)
    for read in (LatestTable(tmp_path).to_arrow, LatestTable(tmp_path).to_polars):
        with pytest.raises(TableError, match=words):
            read()
