from upstream.operators.relations.evaluation import MovingStore
from upstream.operators.state.store import DictStore


def test_what_is_asked_goes_to_the_store_of_the_batch():
    one, other = DictStore(), DictStore()
    store = MovingStore(one)
    store.put("rows", 1, b"a")
    store.store = other
    assert store.get("rows", 1) is None
    store.put("rows", 1, b"b")
    store.remove("rows", 1)
    assert (one.values, other.values) == ({("rows", 1): b"a"}, {})
    assert MovingStore(one).get("rows", 1) == b"a"
