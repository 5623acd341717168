import json
import logging
import os
import subprocess
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j import java_gateway
from pyspark import SparkContext

from upstream.cli.failures import FAILED, MISUSED, CommandFailure, failure_of, hide_traces, with_log
from upstream.conf.errors import OptionError, TableError, UpstreamError

SPARKS = """[STREAM_FAILED] Query [id = 1] terminated with exception: \
[PYTHON_DATA_SOURCE_ERROR] Failed to plan: Traceback (most recent call last):
  File "/x/upstream/datasource/reader.py", line 42, in source_schema
    raise OptionError
upstream.conf.errors.{kind}: unknown option 'tiem', did you mean 'time'? What to do: correct the option.
 SQLSTATE: 38000
\tat org.apache.spark.sql.errors.QueryCompilationErrors$.pythonDataSourceError(QueryCompilationErrors.scala:2415)
"""


def test_ours_directly_and_inside_sparks():
    failure = failure_of(RuntimeError(SPARKS.format(kind="OptionError")))
    assert failure.sentence == "unknown option 'tiem', did you mean 'time'? What to do: correct the option."
    assert failure.code == MISUSED
    assert "QueryCompilationErrors" in failure.details
    assert failure_of(RuntimeError(SPARKS.format(kind="FeedChangedError"))).code == FAILED
    assert failure_of(OptionError("a", hint="b")).code == MISUSED
    assert failure_of(TableError("a", expected="b")).sentence == "a. Expected: b."
    assert failure_of(UpstreamError("a")).code == FAILED


def test_others_by_their_most_telling_line():
    python = (
        "Traceback (most recent call last):\n  File x\n"
        "PermissionError: [Errno 13] Permission denied: '/root/t'\n\tat java"
    )
    assert failure_of(RuntimeError(python)).sentence == "PermissionError: [Errno 13] Permission denied: '/root/t'"
    java = "Job aborted\nCaused by: java.io.IOException: No space left on device\n\tat x"
    assert failure_of(RuntimeError(java)).sentence == "No space left on device"
    assert failure_of(RuntimeError("plain")).sentence == "plain"
    assert failure_of(RuntimeError()).sentence == "RuntimeError"


def test_the_death_of_the_jvm_is_named(monkeypatch):
    jvm = subprocess.Popen(["sleep", "600"])
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=jvm))
    assert failure_of(RuntimeError("plain")).sentence == "plain"
    jvm.kill()
    failure = failure_of(json.JSONDecodeError("Unterminated string starting at", '"', 0))
    assert failure.sentence.startswith(f"Spark's JVM has died: process {jvm.pid} was killed by SIGKILL. If the system")
    assert "Unterminated string" in failure.details
    assert failure_of(OptionError("a")).sentence == "a."


@pytest.mark.parametrize(
    ("text", "stack", "sentence"),
    [
        ("Task 0 failed 2 times. Python worker exited unexpectedly (crashed).", "", "A Python worker"),
        ("[STREAM_FAILED] terminated with exception: Broken pipe", "at x.PythonStreamingSourceRunner.latestOffset",
         "The Python process of Spark that plans"),
        ("[STREAM_FAILED] terminated with exception: Broken pipe", "at x.Other", "[STREAM_FAILED] terminated"),
    ],
)  # fmt: skip
def test_the_death_of_a_python_process_is_named(text, stack, sentence):
    error = RuntimeError(text)
    error._stackTrace = stack
    assert failure_of(error).sentence.startswith(sentence)


@pytest.mark.parametrize(("error", "left"), [(None, 0), (OptionError("a"), 0), (RuntimeError("b"), 1)])
def test_the_log_is_of_this_user_alone_and_stays_if_it_has_details(tmp_path, monkeypatch, error, left):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work(log: Path) -> int:
        assert [log] == [*tmp_path.iterdir()]
        assert log.stat().st_mode & 0o777 == 0o600
        if error is not None:
            raise error
        return 0

    with nullcontext() if error is None else pytest.raises(CommandFailure):
        with_log(None, work)
    assert len([*tmp_path.iterdir()]) == left


def test_the_log_follows_no_link_of_another_user(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = tmp_path / "mine"
    mine.write_text("mine")
    now = time.time()
    for second in range(120):
        at = time.strftime("%Y%m%d-%H%M%S", time.localtime(now + second))
        (tmp_path / f"upstream-{at}-{os.getpid()}.log").symlink_to(mine)
    with_log(None, lambda log: log.write_text("a line of Spark's") * 0)
    assert mine.read_text() == "mine"


def test_an_interrupt_of_a_call_to_java_leaves_no_trace(caplog):
    text = "KeyboardInterrupt while sending command."
    assert f'logging.exception("{text}")' in Path(java_gateway.__file__).read_text(encoding="utf-8")
    root, server = logging.getLogger(), logging.getLogger("py4j.clientserver")
    before = list(root.filters)
    try:
        hide_traces()
        root.error(text)
        root.error("another error")
        # A batch in Python whose query is stopped.
        for cause in ("java.lang.InterruptedException", "java.lang.Error"):
            try:
                raise RuntimeError(f"An error occurred while calling o1.collect.\n: {cause}\n\tat x")
            except RuntimeError:
                server.exception(cause)
    finally:
        root.filters[:] = before
        server.filters.clear()
    assert [record.getMessage() for record in caplog.records] == ["another error", "java.lang.Error"]
