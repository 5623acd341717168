"""Avro and Protobuf values, and a registry that says their schemas."""

import datetime as dt
import decimal
import io
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from kit.malformed_rows import Reported

from upstream.conf.errors import OptionError, SchemaError, UpstreamError
from upstream.datasource.connectors.kafka.options import KafkaOptions
from upstream.datasource.connectors.kafka.records import AvroValues, ChangeAvroValues, ProtobufValues

OLD = {
    "type": "record",
    "name": "Position",
    "fields": [
        {"name": "plate", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "speed", "type": ["null", "double"], "default": None},
        {"name": "stops", "type": {"type": "array", "items": "int"}},
    ],
}
NEW = {**OLD, "fields": [*OLD["fields"], {"name": "line", "type": "string", "default": "none"}]}
AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.timezone.utc)


def avro(schema: dict[str, Any], **record: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(
        out, fastavro.parse_schema(schema), {"plate": "A 1", "at": AT, "speed": 2.5, "stops": [1], **record}
    )
    return out.getvalue()


class Registry(BaseHTTPRequestHandler):
    known: ClassVar = {1: OLD, 2: NEW}
    asked: ClassVar[list[tuple[str, str | None]]] = []

    def do_GET(self) -> None:
        self.asked.append((self.path, self.headers.get("Authorization")))
        number = int(self.path.rpartition("/")[2])
        self.send_response(200 if number in self.known else 404)
        self.end_headers()
        if number in self.known:
            self.wfile.write(json.dumps({"schema": json.dumps(self.known[number])}).encode())

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"access_token": "t0ken", "token_type": "Bearer", "expires_in": 60}).encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def registry():
    server = HTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()


def read(values: Any, sample: list[bytes], schema: pa.Schema | None = None) -> tuple[list[dict[str, Any]], Reported]:
    reported = Reported()
    schema = schema or values.infer(sample)
    ((table, positions),) = values.read(sample, schema, schema.names, reported, lambda at: f"value {at}")
    return [{**row, "position": int(at)} for row, at in zip(table.to_pylist(), positions, strict=True)], reported


def test_avro_by_a_schema_given(tmp_path):
    path = tmp_path / "position.avsc"
    path.write_text(json.dumps(OLD))
    for given in (json.dumps(OLD), str(path)):
        values = AvroValues(KafkaOptions(avro_schema=given))
        good = avro(OLD)
        rows, reported = read(values, [good, good[:-3], good + b"\x00", b"", avro(OLD, speed=None)])
        expected = {"plate": "A 1", "at": AT, "speed": 2.5, "stops": [1]}
        assert rows == [{**expected, "position": 0}, {**expected, "speed": None, "position": 4}]
        assert [row["place"] for row in reported] == ["value 1", "value 2", "value 3"]
    with pytest.raises(OptionError, match="neither JSON nor a file"):
        AvroValues(KafkaOptions(avro_schema=str(tmp_path / "absent"))).infer([])


def test_avro_by_a_registry_with_schemas_that_grow(registry):
    user = {"basic.auth.user.info": "me:s3cret"}
    values = AvroValues(
        KafkaOptions(schema_registry=f"http://{registry}", avro_schema=json.dumps(NEW), registry_settings=user)
    )
    sample = [
        b"\x00" + number.to_bytes(4, "big") + avro(schema) for number, schema in ((1, OLD), (2, NEW), (9, OLD))
    ] + [avro(OLD)]
    rows, reported = read(values, sample)
    assert [(row["plate"], row["line"], row["position"]) for row in rows] == [("A 1", "none", 0), ("A 1", "none", 1)]
    assert [(row["place"], row["reason"]) for row in reported] == [
        ("value 2", "the registry has no schema 9"),
        ("value 3", "the value does not begin with a zero and the number of its schema"),
    ]
    assert {each for each in Registry.asked if each[0].endswith("/1")} == {("/schemas/ids/1", "Basic bWU6czNjcmV0")}
    assert AvroValues(KafkaOptions(schema_registry=f"http://{registry}")).infer(sample).names == [
        field["name"] for field in OLD["fields"]
    ]


def test_a_registry_takes_a_token_of_an_oauth_server(registry):
    token = {"source": "OAUTHBEARER", "issuer.endpoint.url": f"http://{registry}/token", "client.id": "me"}
    token |= {"client.secret": "s3cret", "scope": "read", "logical.cluster": "lsrc-1"}
    names = {"source": "credentials.source"}
    settings = {f"bearer.auth.{names.get(name, name)}": value for name, value in token.items()}
    values = AvroValues(KafkaOptions(schema_registry=f"http://{registry}", registry_settings=settings))
    rows, _ = read(values, [b"\x00" + (1).to_bytes(4, "big") + avro(OLD)])
    assert [row["plate"] for row in rows] == ["A 1"]
    assert ("/schemas/ids/1", "Bearer t0ken") in Registry.asked


def test_a_registry_that_does_not_answer_is_an_error_without_its_password():
    once = {"basic.auth.user.info": "me:s3cret", "max.retries": "0"}
    values = AvroValues(KafkaOptions(schema_registry="http://127.0.0.1:1", registry_settings=once))
    with pytest.raises(UpstreamError, match="does not answer") as error:
        read(values, [b"\x00\x00\x00\x00\x01" + avro(OLD)], pa.schema([("plate", pa.string())]))
    assert "s3cret" not in str(error.value)
    unknown = KafkaOptions(schema_registry="http://127.0.0.1:1", registry_settings={"ssl.unknown": "1"})
    with pytest.raises(OptionError, match=r"ssl\.unknown"):
        AvroValues(unknown).infer([b"\x00\x00\x00\x00\x01"])


def test_avro_that_is_no_column():
    schema = {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]}
    with pytest.raises(SchemaError, match="union"):
        AvroValues(KafkaOptions(avro_schema=json.dumps(schema))).infer([])


def test_protobuf(tmp_path):
    file = descriptor_pb2.FileDescriptorProto(name="p.proto", package="bus", syntax="proto3")
    kind = file.enum_type.add(name="Kind")
    for number, name in enumerate(("BUS", "TRAM")):
        kind.value.add(name=name, number=number)
    inner = file.message_type.add(name="Stop")
    inner.field.add(name="id", number=1, type=5, label=1)
    position = file.message_type.add(name="Position")
    position.field.add(name="plate", number=1, type=9, label=1)
    position.field.add(name="at", number=2, type=3, label=1)
    position.field.add(name="kind", number=3, type=14, type_name=".bus.Kind", label=1)
    position.field.add(name="stops", number=4, type=11, type_name=".bus.Stop", label=3)
    position.field.add(name="next", number=5, type=11, type_name=".bus.Stop", label=1)
    position.field.add(name="blob", number=6, type=12, label=1)
    path = tmp_path / "p.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    values = ProtobufValues(KafkaOptions(descriptor_file=str(path), message_name="bus.Position"))
    stop = pa.struct([("id", pa.int32())])
    columns = {"plate": pa.string(), "at": pa.int64(), "kind": pa.string(), "stops": pa.list_(stop), "next": stop}
    assert values.infer([]) == pa.schema([*columns.items(), ("blob", pa.binary())])
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName("bus.Position"))
    value = made(plate="A 1", at=5, kind=1, stops=[{"id": 7}], blob=b"\xff").SerializeToString()
    rows, reported = read(values, [value, b"\xff\xff", b""])
    whole = {"plate": "A 1", "at": 5, "kind": "TRAM", "stops": [{"id": 7}], "next": None, "blob": b"\xff"}
    empty = {"plate": "", "at": 0, "kind": "BUS", "stops": [], "next": None, "blob": b""}
    assert rows == [{**whole, "position": 0}, {**empty, "position": 2}]
    assert [row["place"] for row in reported] == ["value 1"]
    with pytest.raises(OptionError, match=r"not define the message 'bus\.Other'"):
        ProtobufValues(KafkaOptions(descriptor_file=str(path), message_name="bus.Other"))


def test_a_value_that_does_not_fit_the_columns_asked_for_goes_aside():
    values = AvroValues(KafkaOptions(avro_schema=json.dumps(OLD)))
    rows, reported = read(values, [avro(OLD), avro(OLD, stops=[1 << 20])], pa.schema([("stops", pa.list_(pa.int16()))]))
    assert rows == [{"stops": [1], "position": 0}]
    assert [row["place"] for row in reported] == ["value 1"]


ORDER = {
    "type": "record",
    "name": "Value",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2,
                                             "connect.name": "org.apache.kafka.connect.data.Decimal"}]},
        {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "at", "type": {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}},
    ],
}  # fmt: skip
CHANGES = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", ORDER], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": "connector", "type": "string"}, {"name": "lsn", "type": ["null", "long"]}]}},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip
ORDER_KEY = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}
WIDER_CHANGES = json.loads(json.dumps(CHANGES))
WIDER_CHANGES["fields"][0]["type"][1]["fields"].append({"name": "brand_new", "type": "string", "default": "x"})


def change(schema: dict[str, Any], op: str, **record: Any) -> bytes:
    row = {
        "id": 1,
        "total": decimal.Decimal("-1.25"),
        "day": 19782,
        "at": 1_700_000_000_000_001,
        "brand_new": "y",
        **record,
    }
    event = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
    out = io.BytesIO()
    source = {"connector": "postgresql", "lsn": 7, "db": "shop"}
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {**event, "source": source})
    return out.getvalue()


def test_change_events_in_avro(registry, monkeypatch, caplog):
    monkeypatch.setattr(Registry, "known", {1: CHANGES, 2: WIDER_CHANGES, 3: ORDER_KEY})
    numbered = ((1, change(CHANGES, "c")), (2, change(WIDER_CHANGES, "u", id=2)), (1, change(CHANGES, "d", total=None)))
    sample = [b"\x00" + number.to_bytes(4, "big") + value for number, value in numbered]
    address = f"http://{registry}/changes"
    values = ChangeAvroValues(KafkaOptions(value_format="debezium-avro", schema_registry=address))
    assert values.key_names(b"\x00\x00\x00\x00\x03\x02") == ("id",)
    schema = values.infer(sample[:1])
    row = pa.struct(
        [("id", pa.int64()), ("total", pa.decimal128(10, 2)), ("day", pa.date32()), ("at", pa.timestamp("us"))]
    )
    assert schema.field("row").type == row
    reported = Reported()
    found = values.read([*sample, sample[0][:-1]], schema, schema.names, reported, lambda at: f"value {at}")
    rows = [each for table, _ in found for each in table.to_pylist()]
    first = {"id": 1, "total": decimal.Decimal("-1.25"), "day": dt.date(2024, 2, 29)}
    first["at"] = dt.datetime(2023, 11, 14, 22, 13, 20, 1)
    assert [each["row"] for each in rows] == [first, {**first, "id": 2}, {**first, "total": None}]
    assert [(each["op"], each["source"]["lsn"]) for each in rows] == [("c", 7), ("u", 7), ("d", 7)]
    assert [int(at) for _, positions in found for at in positions] == [0, 1, 2]
    assert [each["place"] for each in reported] == ["value 3"]
    assert "the source has added the column brand_new" in caplog.text
    given = ChangeAvroValues(KafkaOptions(value_format="debezium-avro", avro_schema=json.dumps(CHANGES)))
    assert given.infer([]) == schema
    assert given.key_names(b"\x02") == ()
    with pytest.raises(SchemaError, match="does not describe change events"):
        ChangeAvroValues(KafkaOptions(avro_schema=json.dumps(OLD))).infer([])
