import pytest
from kit.latest_joins import Query, plan

from upstream.core.rows.system_column import SYSTEM

KEYS = [(("v",), ("r",)), (("r",), ("w",)), (("v",), ("w",)), (("r",), ("r",)), (("v", "r"), ("w",))]


@pytest.mark.parametrize("keys", KEYS)
def test_nothing_is_kept_of_rows_that_have_expired(keys):
    query = Query(plan(keys[1], keys[0], "full", ttl=(10, 10)))
    sizes = []
    for batch in range(30):
        at = batch * 100
        rows = [(at + number, f"r{at + number}", at + number, at + number, number % 7 == 0) for number in range(100)]
        query.batch(rows, rows, bounds=(at, at))
        sizes.append(sum(len(value) for store in query.stores.values() for value in store.values.values()))
    assert max(sizes[20:]) < 1.3 * max(sizes[3:10])
    for report in query.reports.values():
        assert report.left_kept <= 150
    query.batch([], [], bounds=(10_000, 10_000))
    assert query.table == {}
    assert sum(report.left_kept + report.right_kept for report in query.reports.values()) == 0
    reports = {**query.reports, **query.versions}.values()
    expired = sum(report.left_expired + report.right_expired for report in reports)
    assert expired == 2 * sum(1 for number in range(3000) if number % 100 % 7)


@pytest.mark.parametrize(("bound", "there"), [(15, True), (16, False)])
def test_a_row_expires_when_the_watermark_has_passed_its_time_and_the_ttl(bound, there):
    query = Query(plan(ttl=(10, None)))
    query.batch([(1, "x", 5, 0, False)], [(1, "x", 0, 1, False)])
    given_rows = query.batch([], [], bounds=(bound, 100))
    assert bool(query.table) == there
    assert [row[SYSTEM]["deleted"] for row in given_rows] == ([] if there else [True])
    assert all(row[SYSTEM]["arrival"].microsecond == 0 for row in given_rows)  # that of the punctuation: a second
    query.batch([(1, "x", 5, 2, False)], [])  # too late, or as new as the one there
    assert bool(query.table) == there
    query.batch([(1, "x", 6, 3, False)], [])
    assert query.table == {(1,): (3, 1, 6)}


def test_a_row_that_arrives_with_the_punctuation_that_ends_it_is_never_given():
    query = Query(plan(ttl=(10, 10)))
    assert query.batch([(1, "x", 5, 0, False)], [(1, "x", 5, 1, False)], bounds=(16, 16)) == []
    assert sum(each.left_expired for each in query.versions.values()) == 1


def test_a_ttl_may_come_later_change_and_go():
    def run(ttl, rows, bound):
        query.join = plan(ttl=(ttl, None))
        query.batch(rows, [(1, "x", 0, 9, False)], bounds=(bound, None))
        return sorted(key for (key,) in query.table)

    query = Query(plan())
    assert run(None, [(1, "x", 5, 0, False), (2, "x", 8, 1, False), (3, "x", 20, 2, False)], None) == [1, 2, 3]
    assert run(10, [], 16) == [2, 3]  # rows that were there before
    assert run(20, [(1, "x", 5, 3, False)], 17) == [2, 3]  # what has expired is not asked for again
    assert run(7, [], 16) == [3]
    assert run(None, [(1, "x", 1, 4, False)], 100) == [1, 3]
    assert run(10, [], 31) == []
