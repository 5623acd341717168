"""Spark's journal of offsets, read back."""

import pytest

from upstream.core.feedback.offsets import journaled_offsets
from upstream.storage.folder import TableFolder


def test_each_source_has_its_offset_whatever_form_that_has(tmp_path):
    (tmp_path / "offsets").mkdir()
    lines = ["v1", '{"batchWatermarkMs":0}', '{"progress":{}}', "-", "17", "at the end", ""]
    (tmp_path / "offsets" / "4").write_text("\n".join(lines))
    assert journaled_offsets(TableFolder(str(tmp_path)), 4) == [{"progress": {}}, 17, "at the end"]
    with pytest.raises(FileNotFoundError):
        journaled_offsets(TableFolder(str(tmp_path)), 5)
