import json

import pyarrow as pa
import pytest
from kit.hosting import Versions

from upstream.conf.errors import CheckpointError
from upstream.operators.runtime.store import DictStore
from upstream.queries.hosting.host_plan import HostPlans
from upstream.queries.hosting.stage import ShardState

VERSIONS = Versions({1: {"q": (1, "SELECT sym, COUNT(*) AS n FROM trade [RANGE 10 MINUTES] GROUP BY sym")}})


def plan(shards):
    return HostPlans(VERSIONS, range(shards))(1)


def test_what_a_stage_saves_is_there_in_the_next_batch():
    store = DictStore()
    state = ShardState(plan(2), store)
    assert state.saved("heard") == {}
    state.known.follow(plan(2))
    state.known.fail([1], "a reason")
    state.waiting.put("some", pa.table({"a": [1]}))
    state.save(heard={"now": 7})
    again = ShardState(plan(2), store)
    assert again.saved("heard") == {"now": 7}
    assert again.known.failed == {1: "a reason"}
    assert [table.to_pydict() for table in again.waiting.take("some")] == [{"a": [1]}]


@pytest.mark.parametrize(
    ("key", "value", "message"), [("plan", {"shards": "3"}, "shards '3', now '2'"), ("layout", 0, "layout 0, now 1")]
)
def test_the_state_of_other_shards_or_of_another_version_is_refused(key, value, message):
    store = DictStore()
    ShardState(plan(2), store).save()
    head = json.loads(store.get("head", 0) or b"{}")
    store.put("head", 0, json.dumps({**head, key: value}).encode())
    with pytest.raises(CheckpointError, match=message):
        ShardState(plan(2), store)
