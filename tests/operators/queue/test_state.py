import numpy as np
import pyarrow as pa

from upstream.core.rows.key import Key
from upstream.operators.queue.cells import Updates
from upstream.operators.queue.keys import HashedKeys
from upstream.operators.queue.queue import ShardPlan, UpdateQueue
from upstream.operators.queue.state import QueueState
from upstream.operators.state.store import DictStore


def queue_over(state):
    queue = UpdateQueue("in-place", HashedKeys(None), page_slots=state.slots, stored=True)
    if state.head:
        queue.restore(state.queue())
    return queue


def test_a_queue_continues_from_its_state_until_that_is_cleared():
    store, plan = DictStore(), ShardPlan(Key(("k",)), None, 1, "in-place")
    numbers = np.arange(10)
    state = QueueState(store, 4)
    queue = queue_over(state)
    queue.enqueue(Updates(([pa.chunked_array([numbers])], numbers), None, numbers + 100), 110)
    state.save(queue, pa.schema([]), plan, {})
    again = QueueState(store)
    queue = queue_over(again)
    assert queue.dequeue(3, 120).cells.number.tolist() == [0, 1, 2]
    again.save(queue, pa.schema([]), plan, {})
    assert len(queue_over(QueueState(store))) == 7
    QueueState(store).clear()
    assert store.values == {}
