"""The stalest keys, asked of a queue's reports, against all rows that wait."""

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import upstream
from upstream.conf.errors import OptionError
from upstream.core.feedback.checkpoint_layout import queue_folder
from upstream.core.feedback.reports import QueueReport, read_reports, write_report
from upstream.core.rows.frames import to_frame
from upstream.core.rows.system_column import SYSTEM, system_array
from upstream.operators.queue.queue import Control, ShardPlan
from upstream.operators.queue.shard import QueueShard
from upstream.operators.state.store import DictStore


def rows(keys, arrivals, seq=0):
    n = len(keys)
    system = system_array(source="a", seq=seq + np.arange(n), arrival_us=np.array(arrivals, dtype=np.int64))
    numbers = pa.array(keys, pa.int64())
    return pa.table({"k": numbers, "first_arrival": pa.array([f"n{k}" for k in keys]), SYSTEM: system})


def plan(**changes):
    given = {"key": ("k", "first_arrival"), "time": None, "shards": 2, "policy": "in-place", "page_slots": 4}
    return ShardPlan(**{**given, "most_stale": 3, **changes})


arriving = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 99)), max_size=20)


@pytest.mark.parametrize("policy", ["in-place", "fifo", "append"])
@given(batches=st.lists(st.tuples(arriving, st.integers(0, 3)), min_size=1, max_size=4))
def test_stalest_of_all_shards(policy, batches, tmp_path_factory):
    checkpoint = tmp_path_factory.mktemp("checkpoint")
    stores, pending, seq, now = {0: DictStore(), 1: DictStore()}, [], 0, 0
    for arrived, budget in batches:
        came = sorted((now + at, key) for key, at in arrived)
        now += 100
        for shard, store in stores.items():
            mine = [(key, at) for at, key in came if key % 2 == shard]
            frames = [to_frame(rows([k for k, _ in mine], [at for _, at in mine], seq))] if mine else []
            pending += mine
            seq += len(mine)
            result, report = QueueShard(shard, plan(policy=policy), store).run(
                frames, control=Control(now, budget).to_json()
            )
            for row in [] if result is None else result.to_pylist():
                of_key = [each for each in pending if each[0] == row["k"]]
                pending = [each for each in pending if each[0] != row["k"]] + of_key[row[SYSTEM]["covered"] :]
            write_report(queue_folder(str(checkpoint)), report)
    oldest = {}
    for key, at in pending:
        oldest[key] = min(oldest.get(key, at), at)
    if not any(each.most_stale for each in read_reports(queue_folder(str(checkpoint)), QueueReport)):
        assert pending == []
        return
    found = upstream.most_stale(checkpoint, 3, now_us=1_000_000)
    assert found.column_names == ["k", "first_arrival", "first_arrival", "age_s", "covered"]
    got = [
        (1_000_000 - round(age * 1e6), key) for age, key in zip(found[3].to_pylist(), found[0].to_pylist(), strict=True)
    ]
    assert [at for at, _ in got] == sorted(oldest.values())[:3]
    assert all(oldest[key] == at for at, key in got)
    assert len({key for _, key in got}) == len(got)


def test_what_the_queue_does_not_report_is_refused(tmp_path):
    with pytest.raises(OptionError, match="no queue has reported"):
        upstream.most_stale(tmp_path)
    folder = queue_folder(str(tmp_path))
    _, report = QueueShard(0, plan(), DictStore()).run([to_frame(rows([1], [1]))], control=Control(2, 0).to_json())
    write_report(folder, report)
    assert upstream.most_stale(tmp_path, 3).num_rows == 1
    for k in (0, 4):
        with pytest.raises(OptionError, match="most_stale="):
            upstream.most_stale(tmp_path, k)
    # A shard that has not reported since the option was given may hide staler keys.
    write_report(folder, dataclasses.replace(report, shard=1, most_stale=None))
    with pytest.raises(OptionError, match="reports 0 keys"):
        upstream.most_stale(tmp_path, 1)


def test_only_the_pages_of_the_stalest_are_read():
    store, big = DictStore(), plan(page_slots=16, key=("k",), most_stale=2)
    QueueShard(0, big, store).run([to_frame(rows(range(256), range(256)))], control=Control(256, 0).to_json())
    _, report = QueueShard(0, big, store).run([], control=Control(257, 0).to_json())
    assert report.pages_read == 1


def test_queue_staleness_of_what_is_served():
    _, report = QueueShard(0, plan(), DictStore()).run(
        [to_frame(rows([1, 1, 2, 3], [1_000_000, 2_000_000, 3_000_000, 4_000_000]))],
        control=Control(5_000_000, 2).to_json(),
    )
    assert (report.delivered, report.ages.count, report.ages.total_s, report.ages.max_s) == (2, 2, 6.0, 4.0)
    assert report.oldest_us == 4_000_000
