"""What is known of the rows after a step."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from kit.journal import through_json

from upstream.conf.errors import CheckpointError, OptionError
from upstream.core.feedback.checkpoint_layout import write_plan_record
from upstream.core.rows.event_times import TimeFormat
from upstream.operators.compile import in_stages
from upstream.plan.explain import fusable
from upstream.plan.fingerprint import (
    FingerprintPart,
    check_same,
    fingerprint,
    from_json,
    needs_checkpoint,
    places,
    to_json,
)
from upstream.plan.nodes import (
    Filter,
    ManyStreams,
    Node,
    NumberRows,
    TimeJoin,
    Transform,
    described,
    joins_tables,
    time_format_given,
)
from upstream.testing import StreamTester

from .building import FIXED, Spec, mapped, ordered, queue, rows, union, where, window


def join(**more: Any) -> Node:
    return TimeJoin(*FIXED, inputs=(rows(), rows()), specification=Spec(), keeping="rows", **more)


def test_steps_that_pass_rows_on_pass_on_that_they_are_retracted():
    changes = join(early=True)
    assert changes.retracts
    filtered = Transform(*FIXED, inputs=(changes,), step=Filter("v > 0"))
    for step in (filtered, mapped(changes), queue(filtered), union(rows(), changes)):
        assert step.retracts


def test_results_by_time_are_not_retracted():
    assert not join().retracts
    assert not union(rows(), join()).retracts
    changed = dataclasses.replace(join(), inputs=(rows(), join(early=True)))
    assert not changed.retracts  # whatever comes before it
    assert not window(join(early=True)).retracts


def test_it_has_a_place_and_a_stage_of_its_own():
    numbering = NumberRows(*FIXED, inputs=(ordered(rows()),), specification=Spec())
    plan = window(numbering)
    assert places(plan, "/cp")[numbering] == "/cp/upstream-numbering/0"
    assert fusable(plan) == frozenset()
    assert fusable(window(ordered(rows()))) != frozenset()
    assert numbering.text.startswith("row numbers")
    assert not plan.retracts


class Windows:
    """Of nothing that runs."""

    def identity(self) -> Mapping[str, str]:
        return {"key": "k", "emit": "all, early", "method": "paned"}

    def changeable(self) -> Mapping[str, str]:
        return {"tombstones": ""}


def test_windows_are_described_as_they_are_written():
    assert described("window", Windows()) == "window, emit all, early, method paned"
    assert described("window", Windows(), hidden=("method",)) == "window, emit all, early"


def test_a_changed_setting_is_named():
    def of(emit: str):
        return ((FingerprintPart("upstream-windows/0", "window", {"emit": emit}),),)

    check_same(of("latest"), of("latest"))
    with pytest.raises(CheckpointError, match=r"has emit 'all, early', and had 'latest'"):
        check_same(of("latest"), of("all, early"))


def test_a_plan_that_joins_a_table_needs_the_checkpoint_and_keeps_key_and_time():
    plans = []

    def steps(stream):
        plans.append(stream.plan)
        found = stream.join_table("names", on="k").where("name IS NOT NULL")
        plans.append(found.plan)
        return found

    names = pa.table({"k": ["a"], "name": ["A"]})
    StreamTester(steps, "k STRING, t BIGINT", key="k", event_time="t", time_format="epoch_us", tables={"names": names})
    before, after = plans
    assert not joins_tables(before)
    assert not needs_checkpoint(before)
    assert joins_tables(after)
    assert needs_checkpoint(after)
    (join,) = after.inputs
    assert (join.key, join.time, join.left_out) == (("k",), "t", None)
    assert "names" in join.text


def together(*streams: Node) -> Node:
    return ManyStreams(*FIXED, inputs=streams)


def test_operators_of_all_streams_have_different_places():
    plan = together(queue(rows()), rows(), queue(window(rows())))
    folders = list(places(plan, "/cp").values())
    assert folders == ["/cp/upstream-queue", "/cp/upstream-windows/0", "/cp/upstream-queue-1"]
    assert "3 streams" in plan.text
    shared = queue(rows())
    with pytest.raises(OptionError, match="two branches"):
        places(together(shared, window(shared)), "/cp")


def test_an_operator_that_moves_to_another_stream_is_refused():
    """What it keeps is of the stream in which it was. Its place is the same, and Spark sees the same operators."""

    def found(plan: Node):
        return from_json(through_json(to_json(fingerprint(plan, places(plan, "/cp"), (), "/cp"))))

    with pytest.raises(CheckpointError, match="upstream-queue-1"):
        check_same(found(together(queue(rows()), queue(rows()))), found(together(queue(rows()), rows())))
    was = found(together(queue(rows()), rows()))
    check_same(was, found(together(queue(rows()), where(rows()))))
    with pytest.raises(CheckpointError, match="number '2', and had '1'"):
        check_same(was, found(together(rows(), queue(rows()))))


def test_streams_that_get_or_lose_all_operators_are_refused(tmp_path):
    def bound(plan: Node) -> object:
        record = in_stages(plan, places(plan, tmp_path), tmp_path)[1]
        if record is not None:
            write_plan_record(str(tmp_path), record)
        (tmp_path / "offsets").mkdir(exist_ok=True)
        (tmp_path / "offsets" / "0").touch()  # Spark has journaled a batch
        return record

    none = together(rows(), rows())
    assert bound(none) is None
    assert bound(none) is None
    both = together(queue(rows()), rows())
    with pytest.raises(CheckpointError, match="is new"):
        bound(both)
    (tmp_path / "offsets" / "0").unlink()
    assert bound(both) is not None
    assert bound(both) is None
    with pytest.raises(CheckpointError, match="is gone"):
        bound(none)


def test_steps_pass_on_how_the_time_counts_and_windows_have_timestamps():
    source = dataclasses.replace(rows(), given=TimeFormat("epoch_ms", "Europe/Paris"))
    assert source.time_format == TimeFormat("epoch_ms")
    for step in (where(source), ordered(source), union(source, rows())):
        assert step.time_format == source.time_format
    assert window(source).time_format == TimeFormat()


@pytest.mark.parametrize(
    ("kind", "kept"),
    [
        (pa.timestamp("us", "UTC"), TimeFormat()),
        (pa.timestamp("us"), TimeFormat(None, "Asia/Tokyo")),
        (pa.date32(), TimeFormat(None, "Asia/Tokyo")),
        (pa.float64(), TimeFormat("epoch_s")),
        (pa.string(), TimeFormat("epoch_s", "Asia/Tokyo")),
        (None, TimeFormat()),
    ],
)
def test_a_column_needs_a_part_of_how_its_source_is_read(kind, kept):
    assert TimeFormat("epoch_s", "Asia/Tokyo").of_column(kind) == kept


def test_what_the_source_has_need_not_be_given_again():
    source = {"eventtime": "ms", "timeformat": "epoch_ms", "timezone": "Asia/Tokyo"}
    assert time_format_given(source, "ms", None, None) == TimeFormat("epoch_ms", "Asia/Tokyo")
    assert time_format_given(source, "ms", "epoch_ms", None) == TimeFormat("epoch_ms", "Asia/Tokyo")
    assert time_format_given(source, "other", "epoch_s", None) == TimeFormat("epoch_s")
    assert time_format_given(None, "ms", None, "Asia/Tokyo") == TimeFormat(None, "Asia/Tokyo")
    for given, message in (
        (("epoch_s", None), "time_format='epoch_s' for a source with time_format='epoch_ms'"),
        ((None, "UTC"), "time_zone='UTC' for a source with time_zone='Asia/Tokyo'"),
        ((None, 5), "time_zone=5"),
    ):
        with pytest.raises(OptionError, match=message):
            time_format_given(source, "ms", *given)
    with pytest.raises(OptionError, match="time_zone='Mars'"):
        time_format_given(None, "ms", None, "Mars")
