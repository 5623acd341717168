"""The sink on Spark, with a death or a failure in it where a test says so.

A step is armed by a file named after it, which holds one word: `stop`, stay there for good, so that the test can kill
all that its job has started; `die`, kill -9 this Python process alone; `fail`, raise an error; `wait`, go on a long
time later. Whoever reaches the step takes the file away, so that it happens once, and leaves one whose name begins with
`reached-`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_upstream import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "dying_upstream"
WAIT_S = 60


def install(spark: SparkSession, folder: str) -> None:
    """Make the format known to a session, which looks for armed steps in a folder."""
    # Workers cannot import this module: it goes to them by value.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])

    class Source(DefaultSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:
            arm(folder)
            return DyingWriter(super().streamWriter(schema, overwrite), folder)

    spark.dataSource.register(Source)


class DyingWriter(DataSourceStreamArrowWriter):
    """The sink's own writer, in processes in which steps are armed."""

    def __init__(self, writer: Any, folder: str) -> None:
        self._writer = writer
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        arm(self._folder)
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        self._writer.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        self._writer.abort(messages, batchId)


def arm(folder: str) -> None:
    """Let this process do what the folder says, step by step."""
    from upstream.sink.spec import steps

    def reached(step: Any) -> None:
        armed, done = os.path.join(folder, step.name), os.path.join(folder, f"reached-{step.name}")
        try:
            os.rename(armed, done)
        except FileNotFoundError:
            return
        what = Path(done).read_text()
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "fail":
            raise RuntimeError(f"the test has failed this task after {step.name}")
        time.sleep(3600 if what == "stop" else WAIT_S)

    steps.reached = reached
