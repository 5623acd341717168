import json
import shutil

import pytest

from upstream.conf.errors import CheckpointError
from upstream.hosting import messages
from upstream.hosting.messages import Command, CommandOfTask, command_of_batch, offset_of


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
    monkeypatch.setattr(messages, "batch_id", lambda: 6)
    assert CommandOfTask(str(tmp_path))() == Command(6, 2)
