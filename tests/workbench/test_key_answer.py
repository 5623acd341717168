"""The answer as JSON."""

import json

import pytest

from upstream.datasource.connectors.contract import Range, place_text, row_place
from upstream.workbench.key_answer import plain_json

from .pipeline import T, two_batches, why


@pytest.fixture
def two(tmp_path):
    return two_batches(tmp_path)


def test_the_answer_is_json(two):
    text = json.dumps(why(two, 1).to_json())
    found = json.loads(text)
    assert found["row"] == {"k": 1, "t": T + 40, "v": "newest"}
    assert found["decided"]["text"].endswith("b.jsonl, line 1")


def test_values_and_places_as_text():
    value = {"a": [b"\x01", float("nan"), True, 1 << 53, (1 << 53) + 1]}
    assert plain_json(value) == {"a": ["0x01", "nan", True, 1 << 53, "9007199254740993"]}
    places = {
        "topic t, partition 1, offset 7": {"topic": "t", "partition": 1, "from": 5, "to": 9, "leader": 3},
        "p, row 3 from byte 5": {"path": "p", "from": 5, "to": 9, "mark": "b81a"},
        "p, row 3": {"path": "p", "groups": [0, 2]},
        "p, row 3 from row group 2": {"path": "p", "groups": [1, 2]},
    }
    assert [place_text(row_place(Range("f", place, 9), 2)) for place in places.values()] == [*places]
