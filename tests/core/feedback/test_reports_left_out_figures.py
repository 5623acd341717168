"""Figures that cannot be written: one warning, a count, and a word when they are written again."""

import logging

import pytest

from upstream.conf.errors import TableError
from upstream.core.feedback.reports import LeftOutFigures
from upstream.storage.folder import TableFolder

LOG = logging.getLogger("upstream.test")


def fails():
    raise OSError(28, "No space left on device for sesame")


def refused():
    raise TableError("it is no table", hint="put it right")


def test_the_first_failure_in_a_row_is_a_warning_and_the_next_ones_are_counted(caplog):
    figures = LeftOutFigures("the report", TableFolder("s3://b/t", {"secret": "sesame"}), LOG)
    assert figures.attempt(lambda: None)
    assert caplog.messages == []
    for count in (1, 2, 3):
        assert not figures.attempt(fails)
        assert figures.count == count
    (warning,) = caplog.messages
    assert warning == (
        "the report cannot be written at s3://b/t: [Errno 28] No space left on device for ***. The job continues, and "
        "catches up when this is put right; until then further failures are counted alone"
    )
    assert figures.attempt(lambda: None)
    assert caplog.messages[1] == (
        "the report is written again at s3://b/t. It was left out 3 times; the job has caught up"
    )
    assert figures.count == 0
    assert not figures.attempt(refused)
    assert "it is no table. What to do: put it right. The job continues" in caplog.messages[-1]


def test_a_defect_is_no_failure_to_write():
    with pytest.raises(ZeroDivisionError):
        LeftOutFigures("the report", TableFolder("t"), LOG).attempt(lambda: 1 // 0)
