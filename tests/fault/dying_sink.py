"""The sink on Spark, with a death or a failure at the steps that a test arms.

A file named after a step arms it, in the folder that the environment's ``UPSTREAM_ARMED`` names. It holds a word:
``stop`` (stay there, so that the test can kill all that its job started), ``die`` (kill -9 this Python process alone),
``fail`` (raise an error) or ``wait`` (continue a minute later); and a batch's number, if only that batch is meant. The
first process to reach the step renames the file to ``reached-…``, so that it happens once.
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
from pyspark import TaskContext, cloudpickle
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage

from pyspark_upstream import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

FORMAT = "dying_upstream"
WAIT_S = 60


def armed(writer: DataStreamWriter, spark: SparkSession) -> DataStreamWriter:
    """Return the writer with steps armed, if the environment names a folder."""
    folder = os.environ.get("UPSTREAM_ARMED")
    if folder is None:
        return writer
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
    return writer.format(FORMAT)


class DyingWriter(DataSourceStreamArrowWriter):
    """The sink's own writer, in processes in which steps are armed."""

    def __init__(self, writer: Any, folder: str) -> None:
        self._writer = writer
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
        arm(self._folder, number)
        return self._writer.write(iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        arm(self._folder, str(batchId))
        self._writer.commit(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        self._writer.abort(messages, batchId)


def arm(folder: str, batch: str | None = None) -> None:
    """Let this process do what the folder says, step by step, in a batch."""
    from upstream.sink.spec import steps

    def reached(step: Any) -> None:
        place, done = os.path.join(folder, step.name), os.path.join(folder, f"reached-{step.name}")
        try:
            what, _, only = Path(place).read_text().partition(" ")
            if only not in ("", batch):
                return
            os.rename(place, done)
        except FileNotFoundError:
            return
        if what == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if what == "fail":
            raise RuntimeError(f"the test has failed this task after {step.name}")
        time.sleep(3600 if what == "stop" else WAIT_S)

    steps.reached = reached
