"""Messages between the stages: the same whatever the order in which they come."""

import json
import shutil

import pyarrow as pa
import pytest

from upstream.conf.errors import CheckpointError
from upstream.hosting import messages
from upstream.hosting.messages import (
    Command,
    CommandOfTask,
    Outbox,
    by_kind,
    command_of_batch,
    control_of,
    offset_of,
    read_messages,
)
from upstream.operators.runtime import shard_processor


def test_a_control_has_its_kind_and_one_text_for_equal_values():
    assert control_of("scan", b=1, a=[2]) == control_of("scan", a=[2], b=1) == '{"a":[2],"b":1,"kind":"scan"}'


def test_messages_come_in_an_order_of_their_own_without_ticks():
    rows = [
        (0, b"2", control_of("rows", shard=1)),
        (0, None, control_of("tick")),
        (0, b"1", control_of("rows", shard=1)),
        (0, None, control_of("heard", shard=0)),
    ]
    found = read_messages(rows)
    assert found == read_messages(rows[::-1])
    assert [(each.kind, each.frame) for each in found] == [("heard", None), ("rows", b"1"), ("rows", b"2")]
    assert found[0].text == rows[3][2]
    kinds = by_kind(found)
    assert {kind: len(each) for kind, each in kinds.items()} == {"heard": 1, "rows": 2}


def test_rows_leave_by_slot_with_or_without_a_frame():
    out = Outbox([70, 80])
    assert len(out) == 0
    assert out.batch().num_rows == 0
    out.put(1, "a", b"frame")
    out.put(0, "b", b"")
    out.put_to_all("c")
    expected = {"slot": [80, 70, 70, 80], "frame": [b"frame", b"", None, None], "control": ["a", "b", "c", "c"]}
    assert out.table().to_pydict() == expected
    assert out.batch().schema.types == [pa.int32(), pa.binary(), pa.string()]


def test_many_long_frames_leave_in_several_batches(monkeypatch):
    monkeypatch.setattr(messages, "_MOST_BYTES", 10)
    out = Outbox([0])
    frames = [b"x" * size for size in (4, 4, 4, 25, 1, 0, 1)]
    for number, frame in enumerate(frames):
        out.put(0, str(number), frame)
    table = out.table()
    assert table.column("frame").to_pylist() == frames
    assert table.column("control").to_pylist() == [str(number) for number in range(7)]
    assert [batch.num_rows for batch in table.to_batches()] == [2, 1, 4]
    assert Outbox([0]).table().num_rows == 0


def write_offsets(checkpoint, batch, *offsets):
    (checkpoint / "offsets").mkdir(parents=True, exist_ok=True)
    lines = ["v1", "{}", *map(json.dumps, offsets), "-"]
    (checkpoint / "offsets" / str(batch)).write_text("\n".join(lines))


def test_a_batch_finds_its_command_among_the_offsets_of_streams(tmp_path):
    place = str(tmp_path)
    write_offsets(tmp_path, 4, {"progress": {}}, offset_of(place, 7))
    write_offsets(tmp_path, 5, offset_of(place, 8, 3, frozenset({9, 2})), {"upstream_table": "t", "version": 1})
    assert command_of_batch(place, 4) == Command(4, 7, 0, None)
    assert command_of_batch(place, 5) == Command(5, 8, 3, frozenset({2, 9}))
    assert offset_of(place, 8, 3, frozenset({9, 2})) == {
        "upstream_queries": place, "version": 8, "tick": 3, "served": [2, 9],
    }  # fmt: skip


def test_a_moved_checkpoint_keeps_its_planned_batch(tmp_path):
    write_offsets(tmp_path / "before", 0, offset_of(str(tmp_path / "before"), 3))
    shutil.move(tmp_path / "before", tmp_path / "after")
    assert command_of_batch(str(tmp_path / "after"), 0) == Command(0, 3)


def test_a_checkpoint_that_is_begun_again_has_other_commands(tmp_path):
    write_offsets(tmp_path, 0, offset_of(str(tmp_path), 3))
    assert command_of_batch(str(tmp_path), 0).version == 3
    write_offsets(tmp_path, 0, offset_of(str(tmp_path), 1))
    assert command_of_batch(str(tmp_path), 0).version == 1


def test_what_is_no_batch_of_queries_is_told(tmp_path):
    with pytest.raises(CheckpointError, match=r"no offsets of batch 2.*asynchronous progress"):
        command_of_batch(str(tmp_path), 2)
    write_offsets(tmp_path, 2, {"progress": {}}, "text", 4)
    with pytest.raises(CheckpointError, match="planned with 0 commands"):
        command_of_batch(str(tmp_path), 2)
    write_offsets(tmp_path, 2, offset_of("a", 1), offset_of("b", 1))
    with pytest.raises(CheckpointError, match="planned with 2 commands"):
        command_of_batch(str(tmp_path), 2)


def test_a_task_asks_for_the_command_of_its_own_batch(tmp_path, monkeypatch):
    write_offsets(tmp_path, 6, offset_of(str(tmp_path), 2))
    monkeypatch.setattr(shard_processor, "batch_id", lambda: 6)
    assert CommandOfTask(str(tmp_path))() == Command(6, 2)
