"""Lines of change events: their forms, the types that they encode, and what their schema is inferred from."""

import base64
import datetime as dt
import json
import math
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.malformed_rows import NoneExpected, Reported

from upstream.conf.errors import SchemaError
from upstream.datasource.connectors.files.formats.debezium import ChangeEventFormat, decoded, wire_type_of
from upstream.datasource.connectors.files.formats.lines import Head, parse_lines

EVENTS = pa.schema(
    [("row", pa.struct([("id", pa.int64())])), ("op", pa.string()), ("source", pa.struct([("lsn", pa.int64())]))]
)
CONNECT = "org.apache.kafka.connect.data."
TIME = "io.debezium.time."


def read(block: bytes, schema: pa.Schema = EVENTS, reported: Any = None) -> list[dict[str, Any]]:
    parser = ChangeEventFormat().parser(Head(0), schema, None)
    tables, _ = parse_lines(
        parser, block, 0, NoneExpected() if reported is None else reported, lambda byte: (f"byte {byte}", None)
    )
    return [row for table, _ in tables for row in table.to_pylist()]


def change(number: int) -> dict[str, Any]:
    return {"op": "c", "before": None, "after": {"id": number}, "source": {"lsn": number}}


def envelope(columns: list[dict[str, Any]], after: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An event with its schema, as Kafka Connect's JSON converter writes it."""
    row = {"type": "struct", "fields": columns, "optional": True}
    source = {"type": "struct", "fields": [{"type": "int64", "field": "lsn"}], "field": "source"}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, source, {"type": "string", "field": "op"}]
    payload = {"before": None, "after": after, "source": {"lsn": 1}, "op": "c"}
    return {"schema": {"type": "struct", "fields": fields}, "payload": {**payload, **more}}


def number_of(name: str) -> dict[str, Any]:
    return {"type": "int64", "field": name}


FORMS = [
    lambda event: event,
    lambda event: {"key": {"id": 1}, "value": event},
    lambda event: {"payload": event, "schema": None},
    lambda event: {"value": {"payload": event}},
    lambda event: {"key": None, "value": {"schema": envelope([number_of("id")], {})["schema"], "payload": event}},
    lambda event: {"schema": envelope([number_of("id"), number_of("payload")], {})["schema"], "payload": event},
]


@settings(max_examples=30)
@given(st.lists(st.one_of(st.integers(0, len(FORMS) - 1), st.none()), min_size=1, max_size=8))
def test_lines_of_any_form_stay_in_order_with_tombstones_between(forms):
    nothing = [b"null", b'{"key":{"id":1},"value":null}']
    lines = [
        nothing[number % 2] if form is None else json.dumps(FORMS[form](change(number)), separators=(",", ":")).encode()
        for number, form in enumerate(forms)
    ]
    found = read(b"\n".join(lines))
    assert [(row["op"], row["row"]["id"], row["source"] and row["source"]["lsn"]) for row in found] == [
        (None, None, None) if form is None else ("c", number, number) for number, form in enumerate(forms)
    ]


def test_a_deletion_has_the_row_before_and_lines_without_an_event_are_malformed():
    delete = json.dumps({"op": "d", "before": {"id": 7}, "after": None, "source": None}).encode()
    reported = Reported()
    found = read(b"\n".join([delete, b'{"id": 1}', b"{}", b"[1]", delete]), reported=reported)
    assert found == [{"row": {"id": 7}, "op": "d", "source": None}] * 2
    assert [row["text"] for row in reported] == ['{"id": 1}', "{}", "[1]"]


@pytest.mark.parametrize(
    ("name", "written", "kind", "meant"),
    [
        (TIME + "Date", 19782, pa.date32(), dt.date(2024, 2, 29)),
        (TIME + "Date", 19782, pa.int32(), 19782),
        (TIME + "Timestamp", -1, pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59, 999000)),
        (TIME + "MicroTimestamp", -1, pa.timestamp("us"), dt.datetime(1969, 12, 31, 23, 59, 59, 999999)),
        (TIME + "MicroTimestamp", -1, pa.int64(), -1),
        (TIME + "NanoTimestamp", 1999, pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
        (TIME + "ZonedTimestamp", "2024-02-29T12:00:00.5+02:00", pa.timestamp("us", "UTC"),
         dt.datetime(2024, 2, 29, 10, 0, 0, 500000, dt.timezone.utc)),
        (CONNECT + "Timestamp", 1, pa.timestamp("us"), dt.datetime(1970, 1, 1, 0, 0, 0, 1000)),
        (CONNECT + "Decimal", "Aw==", pa.string(), "3"),
    ],
)  # fmt: skip
def test_values_of_logical_types(name, written, kind, meant):
    encoding = wire_type_of(name)
    assert encoding is not None
    column = decoded(pa.array([written, None], encoding.written), kind, encoding)
    assert column.to_pylist() == [meant, None]


@settings(max_examples=50)
@given(st.lists(st.one_of(st.none(), st.integers(-(10**38) + 1, 10**38 - 1)), max_size=6), st.integers(0, 10))
def test_decimals_are_big_endian_numbers_in_base64(numbers, scale):
    encoding = wire_type_of(CONNECT + "Decimal", 38, scale)
    assert encoding is not None
    written = [
        None
        if each is None
        else base64.b64encode(each.to_bytes(each.bit_length() // 8 + 1, "big", signed=True)).decode()
        for each in numbers
    ]
    found = decoded(pa.array(written, pa.string()), encoding.meant, encoding)
    wide = Context(prec=60)
    assert [None if each is None else int(each.scaleb(scale, wide)) for each in found.to_pylist()] == numbers


@pytest.mark.parametrize(("written", "message"), [("AQIDBAUGBwgJCgsMDQ4PEBE=", "38 digits"), ("?", "base64")])
def test_a_decimal_that_cannot_be_read_is_an_error(written, message):
    encoding = wire_type_of(CONNECT + "Decimal")
    assert encoding is not None
    with pytest.raises(pa.ArrowInvalid, match=message):
        decoded(pa.array([written]), encoding.meant, encoding)


def test_the_schema_of_events_gives_the_types_of_columns():
    columns = [
        {"type": "int64", "field": "id"},
        {"type": "bytes", "field": "total", "name": CONNECT + "Decimal",
         "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"type": "int32", "field": "day", "name": TIME + "Date"},
        {"type": "bytes", "field": "seal"},
        {"type": "array", "items": {"type": "int32"}, "field": "sizes"},
        {"type": "struct", "fields": [{"type": "double", "field": "x"}], "field": "point"},
    ]  # fmt: skip
    row = {"id": 1, "total": "AMg=", "day": 0, "seal": "/w==", "sizes": [1], "point": {"x": 0.5}}
    lines = [json.dumps({"key": {"schema": {}, "payload": {"id": 1}}, "value": envelope(columns, row)}).encode()]
    schema = ChangeEventFormat().infer(b"\n".join([b"null", *lines]), Head(0))
    expected: dict[str, Any] = {
        "id": pa.int64(),
        "total": pa.decimal128(10, 2),
        "day": pa.date32(),
        "seal": pa.binary(),
    }
    expected |= {"sizes": pa.list_(pa.int32()), "point": pa.struct([("x", pa.float64())])}
    assert schema.field("row").type == pa.struct(list(expected.items()))
    assert schema.field("key").type.names == ["id"]
    (found,) = read(lines[0], schema.remove(3))
    assert found["row"] == {**row, "total": Decimal("2.00"), "day": dt.date(1970, 1, 1), "seal": b"\xff"}
    with pytest.raises(SchemaError, match="'tags' of the events is a map"):
        ChangeEventFormat().infer(json.dumps(envelope([{"type": "map", "field": "tags"}], {})).encode(), Head(0))


def test_each_event_is_read_by_its_own_schema_after_a_change():
    ms, us = ({"type": "int64", "field": "id", "name": TIME + name} for name in ("Timestamp", "MicroTimestamp"))
    lines = [json.dumps(envelope([node], {"id": 1000}), separators=(",", ":")).encode() for node in (ms, us, ms)]
    schema = ChangeEventFormat().infer(b"\n".join(lines), Head(0))
    at = [row["row"]["id"] for row in read(b"\n".join(lines), schema)]
    second, millisecond = dt.datetime(1970, 1, 1, 0, 0, 1), dt.datetime(1970, 1, 1, 0, 0, 0, 1000)
    assert at == [second, millisecond, second]


def test_without_a_schema_the_types_are_those_of_both_rows():
    lines = [
        {"op": "d", "before": {"id": 1, "v": None}, "after": None, "source": {"lsn": 1}},
        {"op": "c", "before": None, "after": {"id": 2, "v": None, "w": 0.5}, "source": {"lsn": 1, "db": None}},
    ]
    schema = ChangeEventFormat().infer(b"\n".join(json.dumps(line).encode() for line in lines), Head(0))
    assert schema.field("row").type == pa.struct([("id", pa.int64()), ("v", pa.string()), ("w", pa.float64())])
    assert schema.field("source").type == pa.struct([("lsn", pa.int64()), ("db", pa.string())])


@pytest.mark.parametrize("described", [True, False])
def test_floats_that_json_lacks_are_text_in_events_and_floats_in_rows(described):
    columns = [
        {"type": "double", "field": "x"},
        {"type": "string", "field": "s"},
        {"type": "array", "items": {"type": "float"}, "field": "xs"},
        {"type": "struct", "fields": [{"type": "double", "field": "y"}], "field": "p"},
    ]
    rows: list[dict[str, Any]] = [
        {"x": "NaN", "s": "NaN", "xs": ["Infinity", 0.5, None], "p": {"y": "-Infinity"}},
        {"x": 1.5, "s": 'a "x":"NaN"', "xs": [], "p": None},
    ]
    lines = [json.dumps(each if described else each["payload"]) for each in (envelope(columns, row) for row in rows)]
    block = "\n".join(lines).encode()
    schema = ChangeEventFormat().infer(block, Head(0))
    kinds = {field.name: str(field.type) for field in schema.field("row").type}
    assert (kinds["x"], kinds["s"]) == ("double", "string")
    assert str([row["row"] for row in read(block, schema)]) == str(
        [
            {"x": math.nan, "s": "NaN", "xs": [math.inf, 0.5, None], "p": {"y": -math.inf}},
            {"x": 1.5, "s": 'a "x":"NaN"', "xs": [], "p": None},
        ]
    )


def test_a_name_of_a_float_and_of_text_leaves_the_text_as_it_is():
    kind = pa.struct([("x", pa.float64()), ("p", pa.struct([("x", pa.string())]))])
    event = {"op": "c", "before": None, "after": {"x": 1.5, "p": {"x": "NaN"}}, "source": {"lsn": 1}}
    schema = EVENTS.set(0, pa.field("row", kind))
    assert read(json.dumps(event).encode(), schema)[0]["row"] == event["after"]


@pytest.mark.parametrize("total", ["12345678901234567890123456789012345.125", "1E+3", "-1"])
def test_decimals_that_are_numbers_are_exact(total):
    columns = [{"type": "bytes", "field": "total", "name": CONNECT + "Decimal", "parameters": {"scale": "3"}}]
    numeric, encoded = (json.dumps(envelope(columns, {"total": each})) for each in (0, "AMg="))
    none = json.dumps(envelope(columns, {"total": None}))
    lines = [encoded, numeric.replace('"total": 0', f'"total": {total}'), none]
    schema = ChangeEventFormat().infer(lines[0].encode(), Head(0))
    assert [row["row"]["total"] for row in read("\n".join(lines).encode(), schema)] == [
        Decimal("0.200"),
        Decimal(total),
        None,
    ]


def test_whole_numbers_beyond_64_bits_are_inferred_as_decimals():
    event = {"op": "c", "before": None, "after": {"id": 10**30 + 1}, "source": {"lsn": 1}}
    schema = ChangeEventFormat().infer(json.dumps(event).encode(), Head(0))
    assert read(json.dumps(event).encode(), schema)[0]["row"] == {"id": 10**30 + 1}


def test_columns_of_several_types_are_refused_with_what_to_do():
    event = {"op": "u", "before": {"id": 1}, "after": {"id": "one"}, "source": {"lsn": 1}}
    with pytest.raises(SchemaError, match=r"'id' is a string and not a number.* option `schema`"):
        ChangeEventFormat().infer(json.dumps(event).encode(), Head(0))
