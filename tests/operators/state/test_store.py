from upstream.operators.state.store import DictStore, StorePart


def test_parts_of_a_store_do_not_meet():
    store = DictStore()
    one, two = StorePart(store, "one"), StorePart(store, "two")
    one.put("head", 0, b"1")
    two.put("head", 0, b"2")
    assert (one.get("head", 0), two.get("head", 0), store.get("head", 0)) == (b"1", b"2", None)
    one.remove("head", 0)
    assert (one.get("head", 0), two.get("head", 0)) == (None, b"2")


def test_a_part_follows_its_store_when_that_is_replaced():
    before, after = DictStore(), DictStore()
    part = StorePart(before, "")
    part.put("rows", 1, b"a")
    part.store = after
    assert part.get("rows", 1) is None
    part.put("rows", 1, b"b")
    part.remove("rows", 1)
    assert (before.values, after.values) == ({("rows", 1): b"a"}, {})
