"""Messages between the stages: the same whatever the order in which they come."""

import pyarrow as pa
from pyspark.sql import Row

from upstream.hosting import messages
from upstream.hosting.messages import Outbox, by_kind, control_of, read_messages


def test_a_control_has_its_kind_and_one_text_for_equal_values():
    assert control_of("scan", b=1, a=[2]) == control_of("scan", a=[2], b=1) == '{"a":[2],"b":1,"kind":"scan"}'


def test_messages_come_in_an_order_of_their_own_without_ticks():
    rows = [
        Row(frame=b"2", control=control_of("rows", shard=1)),
        Row(frame=None, control=control_of("tick")),
        Row(frame=bytearray(b"1"), control=control_of("rows", shard=1)),
        Row(frame=None, control=control_of("heard", shard=0)),
    ]
    found = read_messages(rows)
    assert found == read_messages(rows[::-1])
    assert [(each.kind, each.frame) for each in found] == [("heard", None), ("rows", b"1"), ("rows", b"2")]
    assert found[0].text == rows[3].control
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
