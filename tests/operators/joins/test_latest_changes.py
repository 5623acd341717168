from kit.latest_joins import Query, plan

from upstream.core.rows.system_column import SYSTEM


def changes(rows):
    return sorted((row["left_key"], row["right_key"], row[SYSTEM]["deleted"], row["a"], row["b"]) for row in rows)


def test_a_row_without_a_partner_comes_and_goes_with_the_first_and_last_one():
    joined = Query(plan(("w",), how="full", shards=1))
    assert changes(joined.batch([(1, "x", 1, 10, False)], [])) == [("1", "\\N", False, 10, None)]
    assert changes(joined.batch([], [(5, "x", 1, 20, False)])) == [
        ("1", "5", False, 10, 20), ("1", "\\N", True, None, None),
    ]  # fmt: skip
    # A second partner, and a newer row of the first one, take back nothing.
    assert changes(joined.batch([], [(6, "x", 1, 21, False)])) == [("1", "6", False, 10, 21)]
    assert changes(joined.batch([], [(5, "x", 2, 22, False)])) == [("1", "5", False, 10, 22)]
    assert changes(joined.batch([], [(5, "y", 3, 23, False)])) == [
        ("1", "5", True, None, None), ("\\N", "5", False, None, 23),
    ]  # fmt: skip
    found = joined.batch([], [(6, None, 3, 24, True)])
    assert changes(found) == [("1", "6", True, None, None), ("1", "\\N", False, 10, None)]
    assert {row[SYSTEM]["arrival"].microsecond for row in found} == {24}
    assert joined.table == {("1", "\\N"): (10, None, 1), ("\\N", "5"): (None, 23, 3)}


def test_a_full_join_of_one_key_gives_one_result_for_each_value():
    joined = Query(plan(("r",), ("r",), "full", shards=1))

    def batch(left, right):
        return [(row["r"], row["a"], row["b"], row[SYSTEM]["deleted"]) for row in joined.batch(left, right)]

    assert batch([(0, "x", 1, 10, False)], [(0, "x", 1, 20, False)]) == [("x", 10, 20, False)]
    assert batch([(0, "x", 2, 11, True)], []) == [("x", None, 20, False)]
    assert batch([(0, "x", 3, 12, False)], [(0, "x", 3, 21, True)]) == [("x", 12, None, False)]
    assert batch([(0, "x", 4, 13, True)], []) == [("x", None, None, True)]
    assert batch([(0, "x", 5, 14, False)], [(0, "x", 5, 22, False)]) == [("x", 14, 22, False)]
    assert batch([(0, "x", 6, 15, True)], [(0, "x", 6, 23, True)]) == [("x", None, None, True)]
