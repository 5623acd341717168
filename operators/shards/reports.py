"""What shards tell the planner of the next batch: a small file for each shard, below the query's checkpoint.

It is the one path back from operators to the source. A report is a function of its batch, so a task that is tried again writes the
same; the planner reads reports only between batches, and what it concludes is journaled in an offset.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from .messages import ShardReport

__all__ = ["read_reports", "write_report"]


def write_report(folder: str, report: ShardReport) -> None:
    """Put a shard's report in the place of its last one."""
    value = json.dumps(report.to_json()).encode()
    name = f"shard-{report.shard}.json"
    if "://" in folder:
        from pyarrow import fs

        system, root = fs.FileSystem.from_uri(folder)
        system.create_dir(root, recursive=True)
        with system.open_output_stream(
            f"{root}/{name}"
        ) as stream:  # an object store replaces a whole object or nothing
            stream.write(value)
        return
    os.makedirs(folder, exist_ok=True)
    staged = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(staged, "wb") as file:
        file.write(value)
    os.replace(staged, os.path.join(folder, name))


def read_reports(folder: str) -> list[ShardReport]:
    """The last report of each shard that has made one."""
    read = _remote(folder) if "://" in folder else _local(folder)
    return [ShardReport.from_json(json.loads(value())) for value in read]


def _local(folder: str) -> list[Callable[[], bytes]]:
    if not os.path.isdir(folder):
        return []

    def reader(path: str) -> Callable[[], bytes]:
        def read() -> bytes:
            with open(path, "rb") as file:
                return file.read()

        return read

    return [reader(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.startswith("shard-")]


def _remote(folder: str) -> list[Callable[[], bytes]]:
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(folder)
    found = system.get_file_info(fs.FileSelector(root, allow_not_found=True))

    def reader(path: str) -> Callable[[], bytes]:
        def read() -> bytes:
            with system.open_input_stream(path) as stream:
                return stream.read()

        return read

    return [reader(info.path) for info in sorted(found, key=lambda info: info.path) if "shard-" in info.base_name]
