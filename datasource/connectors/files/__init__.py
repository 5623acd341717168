"""Files: CSV, JSON lines, Parquet and Zeek logs that appear and grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .connector import FilesConnector
from .options import FilesOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ...options import SourceOptions

__all__ = ["FilesConnector", "FilesOptions", "make"]


def make(options: FilesOptions, common: SourceOptions, schema: pa.Schema | None) -> FilesConnector:
    """The connector for a query; its list of consumed files lies in the query's checkpoint folder, if that is known."""
    folder = common.checkpoint_location
    return FilesConnector(options, schema, state_folder=folder and folder.rstrip("/") + "/upstream-files")
