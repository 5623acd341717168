import dataclasses

import pytest

from upstream.conf.errors import OptionError
from upstream.core.feedback.reports import ReorderReport, WindowReport, write_report
from upstream.operators.runtime.ticks import FlushPlanner, flush_rows_each


def report(kind, shard, due):
    numbers = {field.name: 0 for field in dataclasses.fields(kind) if field.type == "int"}
    more = {"bounds": {}} if kind is ReorderReport else {"bound": None, "plan": {}}
    return kind(**{**numbers, **more, "shard": shard, "due": due})


@pytest.mark.parametrize(("kind", "operator"), [(ReorderReport, "reorder"), (WindowReport, "windows")])
def test_a_tick_is_due_while_a_shard_has_rows_to_let_go(kind, operator, tmp_path):
    planner = FlushPlanner(str(tmp_path), (70, 71, 72), operator)
    start = planner.initial()
    assert planner.plan(start, 0) is start
    for shard, due in enumerate((0, 5, 1)):
        write_report(str(tmp_path), report(kind, shard, due))
    tick = planner.plan(start, 0)
    assert tick == {"tick": 1, "slots": [71, 72]}
    assert planner.messages(tick) == [(71, "flush"), (72, "flush")]
    write_report(str(tmp_path), report(kind, 1, 0))
    again = planner.plan(tick, 0)
    assert (again["tick"], again["slots"]) == (2, [72])
    write_report(str(tmp_path), report(kind, 2, 0))
    assert planner.plan(again, 0) is again, "the offset stays, so Spark starts no batch"


def test_rows_are_dealt_out_evenly():
    assert flush_rows_each("slow", 41, 4) == 10
    assert flush_rows_each("eager", None, 4) is None
    with pytest.raises(OptionError, match="flush='lazy'"):
        flush_rows_each("lazy", None, 4)
    with pytest.raises(OptionError, match="flush_rows=3 for 4 shards"):
        flush_rows_each("slow", 3, 4)
