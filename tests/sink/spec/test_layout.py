import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import CharType, StructField, StructType, TimestampType

from upstream.conf.errors import OptionError, SchemaError, TableError
from upstream.core.rows.key import Key
from upstream.sink.spark_writer import stream_writer
from upstream.sink.spec.layout import Layout
from upstream.sink.spec.options import SinkOptions, parse_sink_options

BASE = [("k", pa.int64()), ("t", pa.int64()), ("v", pa.string())]


def test_the_table_records_its_layout(make_sink):
    sink = make_sink(pa.schema([("id.orig_h", pa.string()), ("a", pa.int32()), ("t", pa.int64())]), key="a,id.orig_h")
    sink.batch(0, [sink.rows([("x", 1, 5)])])
    table = DeltaTable(str(sink.path))
    assert {name: value for name, value in table.metadata().configuration.items() if "etention" not in name} == {
        "delta.enableExpiredLogCleanup": "false",
        "upstream.layout": "1",
        "upstream.key": '["a", "id.orig_h"]',
        "upstream.eventTime": "t",
        "upstream.buckets": "4",
    }
    assert table.metadata().partition_columns == ["_upstream_bucket"]
    assert pa.schema(table.schema().to_arrow()).names == ["id.orig_h", "a", "t", "_upstream_seq", "_upstream_bucket"]
    assert table.protocol().min_reader_version == 1


@pytest.mark.parametrize(
    ("options", "columns", "error", "message"),
    [
        ({"key": "k,v"}, BASE, TableError, r'has key \["k"\]'),
        ({"eventTime": ""}, BASE, TableError, "has eventTime t"),
        ({"eventTime": "v2"}, [*BASE, ("v2", pa.int64())], TableError, "has eventTime t"),
        ({"buckets": "8"}, BASE, TableError, "has buckets 4.*rebucket"),
        ({}, BASE[:2], SchemaError, "v is missing from the query"),
        ({}, [*BASE, ("more", pa.int64())], SchemaError, "more is not in the table"),
        ({}, [*BASE[:2], ("v", pa.int64())], SchemaError, "v is string in the table and long in the query"),
    ],
)
def test_an_existing_table_that_does_not_fit_is_refused(make_sink, options, columns, error, message):
    first = make_sink()
    first.batch(0, [first.rows([(1, 10, "a")])])
    with pytest.raises(error, match=message):
        make_sink(pa.schema(columns), **options).writer()
    assert first.version() == 1


def test_a_foreign_table_is_refused(sink):
    write_deltalake(str(sink.path), pa.table({"k": [1], "t": [1], "v": ["a"]}))
    with pytest.raises(TableError, match=r"not made by this sink.*another path"):
        sink.writer()


def test_columns_in_another_order_fit(make_sink):
    first = make_sink()
    first.batch(0, [first.rows([(1, 10, "a"), (2, 10, "a")])])
    turned = make_sink(pa.schema([BASE[2], BASE[0], BASE[1]]))
    turned.batch(1, [turned.rows([("b", 1, 11)], seq=5)])
    assert first.latest() == {1: (11, "b"), 2: (10, "a")}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ([*BASE, ("_upstream_seq", pa.int64())], {}, "the sink's own"),
        ([*BASE, ("K", pa.int64())], {}, r"'k' and 'K' differ in case alone.*toDF"),
        (
            [*BASE, ("d", pa.struct([("e", pa.int64()), ("E", pa.string())]))],
            {},
            r"among the fields of the column 'd' 'e' and 'E' differ in case alone",
        ),
        ([*BASE, ("k", pa.int64())], {}, "'k' occurs 2 times"),
        (BASE, {"key": "nope"}, "key column 'nope' is not among the columns k, t, v"),
        (BASE, {"eventTime": "nope"}, "time column 'nope' is not among"),
        (BASE, {"eventTime": "v"}, "time column 'v' is of type string.*to_timestamp"),
        ([*BASE, ("m", pa.map_(pa.string(), pa.int64()))], {"key": "m"}, "key column 'm' is of type map<string, long>"),
        ([*BASE, ("l", pa.list_(pa.int64()))], {"key": "l"}, "key column 'l' is of type array<long>"),
        ([*BASE, ("d", pa.duration("us"))], {}, "interval"),
    ],
)
def test_columns_that_cannot_be_held(make_sink, columns, options, message):
    with pytest.raises(SchemaError, match=message):
        make_sink(pa.schema(columns), system=False, **options).writer()


def test_spark_types():
    options = SinkOptions(path="/t", key=Key(("K",)), time="T")
    layout = Layout.of(options, StructType([StructField("k", CharType(3), False), StructField("t", TimestampType())]))
    assert (layout.key, layout.time) == (("k",), "t")  # found whatever the case, spelled as in the schema
    assert layout.arrow_schema().field("k") == pa.field("k", pa.string())


def test_a_mangled_system_column_is_refused(sink):
    schema = from_arrow_schema(pa.schema([("k", pa.int64()), ("t", pa.int64()), ("_upstream", pa.string())]))
    with pytest.raises(SchemaError, match="lacks punctuation, source"):
        stream_writer(sink.given, schema, overwrite=False)


def test_options(tmp_path):
    given = {
        "path": "file:///tmp/a%20b/",
        "KEY": "`a,b`, c",
        "checkpointLocation": "/ck",
        "queryName": "q",
        "storage.secret": "hush!",
    }
    target = parse_sink_options(given)
    assert target.location == "/tmp/a b"
    assert target.options.key == ("a,b", "c")
    assert target.storage == {"secret": "hush!"}
    assert "hush" not in repr(target)
    assert "hush" not in target.masked("failed with hush!")
    for changed, message in [
        ({"path": ""}, "path"),
        ({"buckets": "0"}, "buckets='0' is not a whole number of at least 1"),
        ({"bucket": "3"}, "did you mean 'buckets'"),
        ({"checkpointLocation": ""}, "checkpointLocation is not set"),
    ]:
        with pytest.raises(OptionError, match=message):
            parse_sink_options({**given, **changed})
    with pytest.raises(OptionError, match="missing option: path, key"):
        parse_sink_options({"checkpointLocation": "/ck"})
    with pytest.raises(OptionError, match="complete"):
        stream_writer(given, StructType([]), overwrite=True)
    assert parse_sink_options({**given, "path": "s3://bucket/table/"}).is_local is False
