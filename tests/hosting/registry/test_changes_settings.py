import dataclasses
import json

import pyarrow as pa
import pytest
from kit.continuous import BUSES, DOMAINS, MOMENT, TRADE

from upstream.conf.errors import CheckpointError
from upstream.hosting.registry.changes import Settings
from upstream.operators.relations.plan.nodes import Stream

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
