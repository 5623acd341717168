"""Files: CSV, JSON lines, Parquet and Zeek logs that appear and grow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.feedback.checkpoint_layout import FILE_LISTS
from .connector import FilesConnector
from .options import FilesOptions
from .store import FileAccess

if TYPE_CHECKING:
    from ...options import SourceOptions

__all__ = ["FilesConnector", "FilesOptions", "make"]


def make(options: FilesOptions, common: SourceOptions) -> FilesConnector:
    """Return the connector; its list of consumed files is in the checkpoint folder if that is on a disk."""
    checkpoint = common.checkpoint  # in an object store nothing can be appended: there the offsets hold the list
    folder = f"{checkpoint.location}/{FILE_LISTS}" if checkpoint is not None and checkpoint.is_local else None
    # Where the user says what the types are, a key is what its type makes of the text.
    key = common.key if common.schema is None else ()
    return FilesConnector(
        options,
        state_folder=folder,
        access=FileAccess(common.storage),
        key=key,
        time=common.time,
        unseen=common.select is not None,
    )
