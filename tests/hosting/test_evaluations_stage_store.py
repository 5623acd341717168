import pyarrow as pa

from upstream.hosting.evaluations import StorePart, WaitingTables
from upstream.operators.state.store import DictStore


def test_parts_of_a_store_do_not_meet():
    store = DictStore()
    one, two = StorePart(store, "one"), StorePart(store, "two")
    one.put("head", 0, b"1")
    two.put("head", 0, b"2")
    assert (one.get("head", 0), two.get("head", 0), store.get("head", 0)) == (b"1", b"2", None)
    one.remove("head", 0)
    assert (one.get("head", 0), two.get("head", 0)) == (None, b"2")


def test_tables_wait_in_order_across_batches_and_leave_nothing():
    store = DictStore()
    waiting = WaitingTables(store, {})
    waiting.put("a", pa.table({"x": [1, 2]}))
    waiting.put("a", pa.table({"x": []}))
    waiting.put("b", pa.table({"x": [9]}))
    again = WaitingTables(store, waiting.to_json())
    again.put("a", pa.table({"x": [3]}))
    assert [each.to_pydict() for each in again.take("a")] == [{"x": [1, 2]}, {"x": [3]}]
    assert again.take("a") == []
    again.keep({"c"})
    assert store.values == {}
    assert again.to_json() == {}
