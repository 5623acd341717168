import pytest

from upstream.conf.errors import OptionError
from upstream.core.feedback.reports import OperatorReport
from upstream.operators.runtime.ticks import FlushPlanner, flush_rows_each


def test_a_tick_is_due_while_a_shard_has_rows_to_let_go():
    reports = []
    planner = FlushPlanner((70, 71, 72), lambda: reports)
    start = planner.initial()
    assert planner.plan(start, 0) is start
    reports += [OperatorReport(shard, due=due) for shard, due in enumerate((0, 5, 1))]
    tick = planner.plan(start, 0)
    assert tick == {"tick": 1, "slots": [71, 72]}
    assert planner.messages(tick) == [(71, "flush"), (72, "flush")]
    reports[1] = OperatorReport(1)
    again = planner.plan(tick, 0)
    assert (again["tick"], again["slots"]) == (2, [72])
    reports[2] = OperatorReport(2)
    assert planner.plan(again, 0) is again, "the offset stays, so Spark starts no batch"


def test_rows_are_dealt_out_evenly():
    assert flush_rows_each("slow", 41, 4) == 10
    assert flush_rows_each("eager", None, 4) is None
    with pytest.raises(OptionError, match="flush='lazy'"):
        flush_rows_each("lazy", None, 4)
    with pytest.raises(OptionError, match="flush_rows=3 for 4 shards"):
        flush_rows_each("slow", 3, 4)
