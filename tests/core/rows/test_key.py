"""Keys from a user's argument to the names of a schema, and their form as an option."""

import json
import pickle

import pytest

from upstream.conf.column_names import split_list
from upstream.conf.errors import OptionError, SchemaError
from upstream.core.rows.key import Key, json_tree

FIELDS = [
    {"name": "id", "type": "long"},
    {"name": "a.b", "type": "string"},
    {"name": "position", "type": {"type": "struct", "fields": [{"name": "Lane", "type": "long"}]}},
    {"name": "tags", "type": {"type": "array", "elementType": "string", "containsNull": True}},
]
TREE = json_tree(FIELDS)


def test_one_name_or_several_are_a_key_and_anything_else_is_refused():
    assert Key.given("id") == ("id",)
    assert Key.given(["id", "a.b"]) == ("id", "a.b")
    assert Key.optional(None) is None
    for wrong in (None, 5, "", [], ["id", 1], [""]):
        with pytest.raises(OptionError, match=r"^sequence_by="):
            Key.given(wrong, "sequence_by")


def test_names_are_spelled_as_in_the_schema_once_and_for_all():
    key = Key.given(["ID", "a.b", "position.lane"]).resolved(TREE)
    assert key == ("id", "a.b", "`position`.`Lane`")
    assert key.resolved(TREE) == key
    assert key.fields(TREE) == ["`position`.`Lane`"]
    assert key.columns(TREE) == ["id", "a.b", "position"]


def test_names_that_a_schema_lacks_are_refused_by_the_name_of_the_option():
    key = Key.given(["id", "tags.x", "position.id"])
    assert key.absent(TREE) == ["tags.x", "position.id"]
    with pytest.raises(SchemaError, match=r"the sequence column 'tags\.x' is not among the columns id, a\.b"):
        key.resolved(TREE, "sequence")


def test_an_option_and_json_and_a_worker_get_the_same_key():
    key = Key(("id", "a,b", "`position`.`Lane`"))
    assert Key(split_list(key.text)) == key
    assert Key(json.loads(json.dumps(key))) == key
    again = pickle.loads(pickle.dumps(key))
    assert (again, type(again)) == (key, Key)
