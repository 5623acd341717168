"""Make ``spark.readStream.format("upstream")`` work without a call that registers the source.

Spark looks through the installed modules for names that begin with ``pyspark_`` and registers their ``DefaultSource``.
Several short-lived Python processes import this module for every query, so it imports nothing until it is asked to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """The ``upstream`` format: a source of update streams, and a sink that keeps the newest row per key.

    Guarantee: the source is replayable (a batch is a function of its journaled offsets), the sink transactional;
    together exactly once.
    """

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        from upstream.conf.java import spark_problem

        problem = spark_problem()
        if problem is not None:
            from upstream.conf.errors import EnvironmentMissingError

            raise EnvironmentMissingError(problem)

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "upstream"

    def schema(self) -> StructType | str:
        """Return the schema of the rows read: given by option, recorded in the checkpoint, or inferred."""
        from upstream.datasource.spark_reader import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``."""
        from upstream.datasource.spark_reader import UpstreamBatchReader

        return UpstreamBatchReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``."""
        from upstream.sink.write_batch import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        from upstream.datasource.spark_reader import UpstreamStreamReader

        return UpstreamStreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for ``df.writeStream``."""
        from upstream.sink.spark_writer import stream_writer

        return stream_writer(self.options, schema, overwrite)
