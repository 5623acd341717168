"""What shards and tasks tell the planner of the next batch: a small file each, below the query's checkpoint.

It is the one path back from operators to the source. A report is a function of its batch, so a task that is tried again writes the
same; the planner reads reports only between batches, and what it concludes is journaled in an offset.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from typing import Any

from .messages import Served, ShardReport

__all__ = ["read_reports", "read_served", "write_report", "write_served"]


def write_report(folder: str, report: ShardReport) -> None:
    """Put a shard's report in the place of its last one."""
    _write(folder, f"shard-{report.shard}.json", report.to_json())


def read_reports(folder: str) -> list[ShardReport]:
    """The last report of each shard that has made one."""
    return [ShardReport.from_json(value) for value in _read(folder, "shard-")]


def write_served(folder: str, task: int, served: Served) -> None:
    """Put what a task says of its rows in the place of what it said before."""
    _write(folder, f"served-{task}.json", dataclasses.asdict(served))


def read_served(folder: str) -> list[Served]:
    """What each task said last."""
    return [Served(**value) for value in _read(folder, "served-")]


def _write(folder: str, name: str, value: dict[str, Any]) -> None:
    text = json.dumps(value).encode()
    if "://" in folder:
        from pyarrow import fs

        system, root = fs.FileSystem.from_uri(folder)
        system.create_dir(root, recursive=True)
        # An object store replaces a whole object or nothing.
        with system.open_output_stream(f"{root}/{name}") as stream:
            stream.write(text)
        return
    os.makedirs(folder, exist_ok=True)
    staged = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(staged, "wb") as file:
        file.write(text)
    os.replace(staged, os.path.join(folder, name))


def _read(folder: str, prefix: str) -> list[dict[str, Any]]:
    found = _remote(folder, prefix) if "://" in folder else _local(folder, prefix)
    return [json.loads(value) for value in found]


def _local(folder: str, prefix: str) -> Iterator[bytes]:
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.startswith(prefix):
            with open(os.path.join(folder, name), "rb") as file:
                yield file.read()


def _remote(folder: str, prefix: str) -> Iterator[bytes]:
    from pyarrow import fs

    system, root = fs.FileSystem.from_uri(folder)
    for info in sorted(
        system.get_file_info(fs.FileSelector(root, allow_not_found=True)), key=lambda info: str(info.path)
    ):
        if info.base_name.startswith(prefix):
            with system.open_input_stream(info.path) as stream:
                yield stream.read()
