"""Workers forked by the daemon look for garbage among what is new."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from upstream.conf.worker_daemon import FreezingCollector


class _Node:
    other: _Node


def _pair() -> tuple[_Node, weakref.ref[_Node]]:
    one, two = _Node(), _Node()
    one.other, two.other = two, one
    return one, weakref.ref(one)


@pytest.fixture
def collector():
    gc.disable()
    yield FreezingCollector()
    gc.unfreeze()
    gc.enable()


def test_survivors_are_exempt_after_tasks_1_2_4_and_8(collector):
    kept = list[list[int]]()
    exempt_after = list[int]()
    for task in range(1, 10):
        kept.append([])
        collector.collect()
        # An exempt object is in none of the collector's generations. The count of frozen objects would not do: it falls
        # when an earlier survivor is freed.
        if not any(each is kept[-1] for each in gc.get_objects()):
            exempt_after.append(task)
    assert exempt_after == [1, 2, 4, 8]


def test_garbage_of_each_task_is_collected(collector):
    for _ in range(5):
        node, seen = _pair()
        del node
        assert seen() is not None
        collector.collect()
        assert seen() is None


def test_garbage_that_has_survived_young_collections_is_collected_after_8_tasks(collector):
    for _ in range(9):
        collector.collect()
    node, seen = _pair()
    gc.collect(1)  # as Python does during a task
    del node
    left = list[bool]()
    for _ in range(10, 17):
        collector.collect()
        left.append(seen() is not None)
    assert left == [True] * 6 + [False]


def test_a_survivor_that_nothing_refers_to_is_freed(collector):
    node = _Node()
    seen = weakref.ref(node)
    collector.collect()
    assert gc.get_freeze_count() > 0
    del node
    assert seen() is None


def test_workers_of_a_session_have_it(spark):
    def exempt(batches: Iterator[object]) -> Iterator[object]:
        import pyarrow as pa

        list(batches)  # a worker that leaves rows unread is not used again
        yield pa.RecordBatch.from_pydict({"objects": [gc.get_freeze_count()]})

    rows = spark.range(2, numPartitions=2)
    rows.mapInArrow(exempt, "objects long").collect()
    again = rows.mapInArrow(exempt, "objects long").collect()
    assert max(row.objects for row in again) > 10_000
