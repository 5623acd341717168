"""Feeds of CSV files, and streams over them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import upstream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def write_csv(file: Path, header: str, rows: Iterable[Sequence[object]]) -> None:
    """Write a file of rows, whose cells need no quotes; its folder is made if it is not there."""
    file.parent.mkdir(exist_ok=True)
    file.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")


def csv_feed(
    spark: SparkSession, path: Path | str, ddl: str = "key STRING, ms BIGINT, value BIGINT", **options: Any
) -> DataFrame:
    """Stream CSV files through the source: rows by `key`, whose time `ms` is in milliseconds."""
    given = {"fileFormat": "csv", "key": "key", "eventTime": "ms", "timeFormat": "epoch_ms", **options}
    reader = spark.readStream.format("upstream").schema(upstream.with_system_ddl(ddl))
    return reader.options(path=str(path), **given).load()
