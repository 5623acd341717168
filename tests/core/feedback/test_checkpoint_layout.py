"""The record of a query's operators."""

import json

import pytest

from upstream.conf.errors import CheckpointError
from upstream.core.feedback.checkpoint_layout import (
    has_begun,
    read_plan_record,
    read_steps,
    write_plan_record,
    write_steps,
)
from upstream.storage.folder import folder_at


def test_it_is_read_as_it_was_written_and_the_last_one_counts(tmp_path):
    checkpoint = str(tmp_path / "cp")
    assert read_plan_record(checkpoint) is None
    write_plan_record(checkpoint, [[{"place": "upstream-queue"}]])
    write_plan_record(checkpoint, [["last"]])
    assert read_plan_record(checkpoint) == [["last"]]


def test_a_query_has_begun_once_a_batch_is_journaled(tmp_path):
    assert not has_begun(folder_at(str(tmp_path / "none")))
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    (offsets / ".0.crc").touch()
    (offsets / "0.tmp").touch()
    assert not has_begun(folder_at(str(tmp_path)))
    (offsets / "7").touch()
    assert has_begun(folder_at(str(tmp_path)))


def test_another_layout_is_refused(tmp_path):
    write_plan_record(str(tmp_path), [])
    (path,) = tmp_path.glob("upstream-plan/*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "layout": 2}))
    with pytest.raises(CheckpointError, match="has layout 2"):
        read_plan_record(str(tmp_path))


def test_the_steps_of_the_last_start_are_read_and_those_of_another_layout_are_unknown(tmp_path):
    folder = folder_at(str(tmp_path / "cp"))
    assert read_steps(folder) is None
    write_steps(folder, [])
    write_steps(folder, [{"name": "step-0"}])
    assert read_steps(folder) == [{"name": "step-0"}]
    path = tmp_path / "cp" / "upstream-plan" / "steps.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "layout": 9}))
    assert read_steps(folder) is None
