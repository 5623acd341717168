"""The records of a query's operators, and of Spark."""

import json

import pytest

from upstream.conf.errors import CheckpointError
from upstream.conf.process_identity import Process
from upstream.core.feedback.checkpoint_layout import (
    SPARK,
    SparkApplication,
    SparkTimes,
    has_begun,
    page_address,
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


def test_sparks_times_of_the_latest_batches_stay(tmp_path):
    checkpoint = folder_at(str(tmp_path))
    assert SparkTimes.read(checkpoint, 3) is None
    for batch in range(400):
        SparkTimes(batch, batch * 10, {"addBatch": 0.5}).write(checkpoint)
    assert SparkTimes.read(checkpoint, 399) == SparkTimes(399, 3990, {"addBatch": 0.5})
    assert SparkTimes.read(checkpoint, 128) is None
    assert SparkTimes.read(checkpoint, 129) is not None
    (tmp_path / SPARK / "399.json").write_text("{")
    assert SparkTimes.read(checkpoint, 399) is None, "it is being replaced, or of another version"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:4040", "http://127.0.0.1:4040"),
        ("https://user:secret@driver:4040/proxy/app?token=secret#x", "https://driver:4040/proxy/app"),
        ("javascript:alert(1)", None),
        ("javascript://driver/%0aalert(1)", None),
        ("data:text/html,<script>alert(1)</script>", None),
        ("http:///path", None),
        ("http://[", None),
        (None, None),
        (7, None),
    ],
)
def test_an_address_is_a_page_without_secrets_or_none(tmp_path, text, expected):
    assert page_address(text) == expected
    checkpoint, processes = folder_at(str(tmp_path)), (Process("here", "boot", 7, 9),)
    SparkApplication("app", text, processes).write(checkpoint)
    record = tmp_path / SPARK / "application.json"
    assert "secret" not in record.read_text()
    record.write_text(json.dumps({**json.loads(record.read_text()), "pages": text}))
    assert SparkApplication.read(checkpoint) == SparkApplication("app", expected, processes)
