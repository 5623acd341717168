import logging
from pathlib import Path

from py4j import java_gateway

from upstream.cli.failures import FAILED, MISUSED, failure_of, hide_interrupts
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


def test_an_interrupt_of_a_call_to_java_leaves_no_trace(caplog):
    text = "KeyboardInterrupt while sending command."
    assert f'logging.exception("{text}")' in Path(java_gateway.__file__).read_text(encoding="utf-8")
    root, server = logging.getLogger(), logging.getLogger("py4j.clientserver")
    before = list(root.filters)
    try:
        hide_interrupts()
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
