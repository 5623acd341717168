"""Names that plain Delta does not admit: such a table maps each column to itself, and others stay as they are."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.tables import read_letters

from upstream.conf.errors import TableError
from upstream.delta_format.column_mapping import field_ids, ids_of, mapped, mapping_protocol, needs_mapping
from upstream.sink.admin.check import check_table
from upstream.sink.admin.layout_change import rebucket_table
from upstream.sink.admin.repair import repair_table
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.spark_writer import check_sink
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.log_entry import put_entry
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")

MODE, LAST = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
UNPLAIN = " ,;{}()\n\t="
INNER = pa.struct([("in ner", pa.int64()), ("plain", pa.list_(pa.struct([("x;y", pa.int64())])))])
COLUMNS = pa.schema([("the key", pa.int64()), ("t", pa.int64()), ("a,b", pa.string()), ("s", INNER)])
NAMED = {"key": "the key"}


def row(key: int, at: int, text: str) -> tuple[Any, ...]:
    return key, at, text, {"in ner": key, "plain": [{"x;y": at}]}


def columns_in_log(path: Path) -> dict[str, dict[str, Any]]:
    """The metadata of the table's columns and their fields, by their path."""
    found: dict[str, dict[str, Any]] = {}

    def look(kind: Any, path: str) -> None:
        for field in kind.get("fields", ()) if isinstance(kind, dict) else ():
            found[f"{path}{field['name']}"] = field["metadata"]
            look(field["type"], f"{path}{field['name']}/")
        for name in ("elementType", "keyType", "valueType"):
            if isinstance(kind, dict) and name in kind:
                look(kind[name], f"{path}{name}/")

    look(json.loads(DeltaTable(str(path)).schema().to_json()), "")
    return found


def ids_in_file(path: Path) -> dict[str, int]:
    """The field ids of a Parquet file's columns, by their path."""
    found: dict[str, int] = {}

    def look(field: pa.Field, path: str) -> None:
        if field.metadata and b"PARQUET:field_id" in field.metadata:
            found[f"{path}{field.name}"] = int(field.metadata[b"PARQUET:field_id"])
        if pa.types.is_struct(field.type):
            for child in field.type:
                look(child, f"{path}{field.name}/")
        elif pa.types.is_list(field.type):
            look(field.type.value_field.with_name("elementType"), f"{path}{field.name}/")

    for field in pq.ParquetFile(path).schema_arrow:
        look(field, "")
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_name_is_a_column(new_sink, engine, data):
    letters = st.text(st.sampled_from(UNPLAIN + ".`'\"aé/%"), min_size=1, max_size=4)
    name = letters.filter(lambda text: text.strip() and not text.startswith("`"))
    plain = data.draw(st.booleans())
    names = list("kvst") if plain else data.draw(st.lists(name, min_size=4, max_size=4, unique_by=str.lower))
    columns = pa.schema(
        [(names[0], pa.int64()), (names[1], pa.int64()), (names[2], pa.struct([(names[3], pa.string())]))]
    )
    batches = data.draw(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=4))
    quoted = "`" + names[0].replace("`", "``") + "`"
    sink = new_sink(columns, key=quoted, eventTime=names[1])
    model: dict[int, tuple[Any, ...]] = {}
    for batch_id, keys in enumerate(batches):
        rows = [(key, batch_id, {names[3]: f"{key}{batch_id}"}) for key in sorted(set(keys))]
        if batch_id:
            sink.options = {**sink.options, "engine": data.draw(st.sampled_from(ENGINES))}
        sink.batch(batch_id, [sink.rows(rows, seq=10 * batch_id)])
        model |= {each[0]: each[1:] for each in rows}
    if not model:
        return
    assert sink.latest() == model
    assert check_table(str(sink.path)).healthy
    asked = any(character in UNPLAIN for name in names for character in name)
    assert (MODE in DeltaTable(str(sink.path)).metadata().configuration) == asked
    in_log = columns_in_log(sink.path)
    assert {bool(about) for about in in_log.values()} == {asked}
    assert bool(ids_in_file(sink.path / next(iter(sink.live_files())))) == asked


def test_a_column_is_called_in_the_files_as_it_is(make_sink, engine):
    sink = make_sink(COLUMNS, **NAMED)
    sink.batch(0, [sink.rows([row(1, 1, "x")])])
    table = DeltaTable(str(sink.path))
    in_log = columns_in_log(sink.path)
    assert {path: about[PHYSICAL] for path, about in in_log.items()} == {
        path: path.rpartition("/")[2] for path in in_log
    }
    numbers = {path: about[ID] for path, about in in_log.items()}
    assert sorted(numbers.values()) == list(range(1, len(in_log) + 1))
    assert table.metadata().configuration[MODE] == "name"
    assert table.metadata().configuration[LAST] == str(len(in_log))
    (file,) = sink.live_files()
    del numbers["_upstream_bucket"]
    assert ids_in_file(sink.path / file) == numbers
    protocol = table.protocol()
    by_number = (2, 5, None) if engine == "rewrite" else (3, 7, ["columnMapping", "deletionVectors"])
    assert (protocol.min_reader_version, protocol.min_writer_version, protocol.reader_features) == by_number


def test_times_without_a_zone_need_the_features_by_name(make_sink, engine):
    columns = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("at noon", pa.timestamp("us"))])
    sink = make_sink(columns)
    sink.batch(0, [sink.rows([(1, 1, 5)])])
    protocol = DeltaTable(str(sink.path)).protocol()
    wanted = {"columnMapping", "timestampNtz"} | ({"deletionVectors"} if engine == "vectors" else set())
    assert set(protocol.reader_features) == wanted == set(protocol.writer_features)
    assert sink.table().num_rows == 1


def test_schema_evolution_switches_mapping_on(make_sink):
    base = pa.schema([("k", pa.int64()), ("t", pa.int64())])
    before = make_sink(base)
    before.batch(0, [before.rows([(1, 1), (2, 1)])])
    DeltaTable(str(before.path)).alter.set_column_metadata("t", {"comment": "when"})
    after = make_sink(base.append(pa.field("the value", pa.string())), query_id="query-2", schemaEvolution="add")
    after.batch(0, [after.rows([(2, 2, "x")], seq=5)])
    assert after.latest() == {1: (1, None), 2: (2, "x")}
    in_log = columns_in_log(after.path)
    assert in_log["t"]["comment"] == "when"
    assert {path: about[PHYSICAL] for path, about in in_log.items()} == {path: path for path in in_log}
    more = make_sink(after.columns.append(pa.field("one more", INNER)), query_id="query-3", schemaEvolution="add")
    more.batch(0, [more.rows([(3, 3, "y", None)], seq=9)])
    again = columns_in_log(more.path)
    assert {path: again[path][ID] for path in in_log} == {path: about[ID] for path, about in in_log.items()}
    numbers = [about[ID] for about in again.values()]
    assert len(set(numbers)) == len(numbers)
    assert DeltaTable(str(more.path)).metadata().configuration[LAST] == str(max(numbers))
    # The first query, which knows neither column, goes on.
    lasting = make_sink(base, schemaEvolution="add")
    lasting.batch(1, [lasting.rows([(1, 4)], seq=20)])
    assert check_table(str(more.path)).healthy
    assert {each["k"]: each["the value"] for each in more.table().to_pylist()} == {1: None, 2: "x", 3: "y"}


def test_two_who_change_columns_at_once(make_sink, monkeypatch):
    before = make_sink()
    before.batch(0, [before.rows([(1, 1, "x")])])
    columns = before.columns.append(pa.field("a b", pa.int64()))
    monkeypatch.setattr("upstream.sink.table.mapped_table.put_entry", lambda *_: False)
    with pytest.raises(TableError, match="cannot be changed: another program has written version 2"):
        make_sink(columns, query_id="query-2", schemaEvolution="add").writer()


def test_whoever_looks_after_the_table(make_sink):
    sink = make_sink(COLUMNS, **NAMED)
    sink.batch(0, [sink.rows([row(key, 1, "x") for key in range(40)])])
    sink.batch(1, [sink.rows([row(5, 2, "y")], seq=50, deleted=np.array([True]))])
    rebucket_table(str(sink.path), 8)
    wider = make_sink(COLUMNS, **NAMED, buckets="8")
    wider.batch(2, [wider.rows([row(6, 2, "y"), row(5, 1, "late")], seq=60)])
    assert check_table(str(sink.path), source=str(sink.path)).healthy
    assert len(sink.latest()) == 39
    lost = next(iter(sink.live_files()))
    (sink.path / lost).write_bytes(b"no Parquet")
    assert not check_table(str(sink.path)).healthy
    assert repair_table(str(sink.path), force=True).done
    assert check_table(str(sink.path)).healthy
    done = TableMaintenance(TableFolder(str(sink.path)), DeltaTable(str(sink.path)), MaintenanceRules()).run()
    assert done.checkpoint
    assert DeltaTable(str(sink.path)).vacuum(dry_run=True) == []
    wider.batch(3, [wider.rows([row(7, 3, "z")], seq=70)])
    assert wider.latest()[7][1] == "z"


def test_rows_put_aside(make_sink):
    sink = make_sink(COLUMNS, **NAMED, deadLetterRows="conflicts")
    sink.write(0, [sink.rows([row(1, 1, "x"), row(1, 1, "y")])])
    (found,) = read_letters(sink.checkpoint / "dead_letters")
    assert (found["the key"], found["a,b"]) == (1, "x")


def with_log_changed(sink: Any, change: Any) -> None:
    version = sink.version()
    lines = [
        json.loads(line)
        for path in sorted((sink.path / "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    metadata = [line["metaData"] for line in lines if "metaData" in line][-1]
    change(metadata)
    target = parse_sink_options(sink.given)
    assert put_entry(target.folder, version + 1, {"operation": "RENAME COLUMN"}, [{"metaData": metadata}])


def renamed(metadata: dict[str, Any]) -> None:
    metadata["schemaString"] = metadata["schemaString"].replace('"name":"a,b"', '"name":"other"')


def by_id(metadata: dict[str, Any]) -> None:
    metadata["configuration"][MODE] = "id"


@pytest.mark.parametrize(
    ("change", "message"),
    [(renamed, "other is a,b there.*RENAME COLUMN"), (by_id, r"by 'id' \(delta.columnMapping.mode\)")],
)
def test_a_table_whose_files_call_its_columns_otherwise_is_refused(make_sink, change, message):
    sink = make_sink(COLUMNS, **NAMED)
    sink.batch(0, [sink.rows([row(1, 1, "x")])])
    with_log_changed(sink, change)
    other = make_sink(COLUMNS.set(2, pa.field("other", pa.string())), **NAMED)
    for refused in (
        other.writer,
        lambda: check_table(str(sink.path)),
        lambda: repair_table(str(sink.path)),
        lambda: rebucket_table(str(sink.path), 8),
    ):
        with pytest.raises(TableError, match=message):
            refused()


def test_a_store_that_takes_no_entries_is_refused_at_once(make_sink, monkeypatch):
    sink = make_sink(COLUMNS, **NAMED)
    monkeypatch.setattr("upstream.sink.spark_writer.load_table", lambda _: None)
    monkeypatch.setattr(TableFolder, "puts_refused", lambda _: TableError("it cannot", hint="do it; or else"))
    with pytest.raises(TableError, match=r"it cannot.*or do it"):
        check_sink({**sink.given, "path": "s3://lake/table"}, sink.schema)


def without(metadata: dict[str, Any], *names: str) -> None:
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] not in names]
    metadata["schemaString"] = json.dumps(schema)


def test_a_dropped_column_does_not_come_back_with_its_values(make_sink):
    sink = make_sink(COLUMNS, **NAMED)
    sink.batch(0, [sink.rows([row(1, 1, "dropped")])])
    with_log_changed(sink, lambda metadata: without(metadata, "a,b"))
    again = make_sink(COLUMNS, **NAMED, schemaEvolution="add")
    with pytest.raises(TableError, match=r"column a,b.*REORG"):
        again.writer()
    other = make_sink(COLUMNS.set(2, pa.field("other name", pa.string())), **NAMED, schemaEvolution="add")
    other.batch(1, [other.rows([row(2, 1, "x")], seq=5)])
    found = {each["the key"]: each["other name"] for each in other.table().to_pylist()}
    assert found == {1: None, 2: "x"}


def test_what_a_schema_needs():
    plain = {"type": "struct", "fields": [{"name": "a.b", "type": "long", "nullable": True, "metadata": {}}]}
    deep = {"type": "array", "elementType": {"type": "map", "keyType": "string", "valueType": plain}}
    assert not needs_mapping({"type": "struct", "fields": [{"name": "x", "type": deep}]})
    plain["fields"].append({"name": "a b", "type": "long", "nullable": True, "metadata": {}})
    schema = {"type": "struct", "fields": [{"name": "x", "type": deep, "nullable": True, "metadata": {}}]}
    assert needs_mapping(schema)
    numbers = field_ids(schema, {("x",): 7}, 9)
    assert numbers == {("x",): 7, ("x", "element", "value", "a.b"): 10, ("x", "element", "value", "a b"): 11}
    assert ids_of(mapped(schema, numbers)) == numbers
    assert mapping_protocol(schema) == {"minReaderVersion": 2, "minWriterVersion": 5}
    assert mapping_protocol(schema, {"minReaderVersion": 2, "minWriterVersion": 6}) is None
    named = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["appendOnly"]}
    features = {"readerFeatures": ["columnMapping"], "writerFeatures": ["appendOnly", "columnMapping"]}
    assert mapping_protocol(schema, named) == {"minReaderVersion": 3, "minWriterVersion": 7, **features}
