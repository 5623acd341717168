"""The answer as JSON."""

import json

import pytest

from upstream.workbench.key_answer import place_text, plain_json

from .pipeline import T, two_batches, why


@pytest.fixture
def two(tmp_path):
    return two_batches(tmp_path)


def test_the_answer_is_json(two):
    text = json.dumps(why(two, 1).to_json())
    assert json.loads(text)["row"] == {"k": 1, "t": T + 40, "v": "newest"}


def test_values_and_places_as_text():
    value = {"a": [b"\x01", float("nan"), True, 1 << 53, (1 << 53) + 1]}
    assert plain_json(value) == {"a": ["0x01", "nan", True, 1 << 53, "9007199254740993"]}
    assert place_text({"topic": "t", "partition": 1, "offset": 2}) == "topic t, partition 1, offset 2"
    assert place_text({"path": "p", "row": 0, "from": 5}) == "p, row 1 from byte 5"
