"""Append-only lists in files below a checkpoint. A journaled offset has the file and the valid length."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from typing import Any

from ..conf.errors import CheckpointError


def append_to(folder: str, reference: Mapping[str, Any], data: bytes) -> dict[str, Any]:
    """Append data to a list and sync it to disk; return the reference to the longer list.

    A reference has the file's name (``list``), length (``bytes``) and checksum (``crc``); an empty one begins a list.
    Data beyond its length belongs to an offset that Spark never journaled, and is overwritten.
    """
    length, crc = reference.get("bytes", 0), reference.get("crc", 0)
    name = reference.get("list") or _new_list(folder)
    with open(os.path.join(folder, name), "r+b") as file:
        file.truncate(length)
        file.seek(length)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return {"list": name, "bytes": length + len(data), "crc": zlib.crc32(data, crc)}


def read_appended(folder: str, reference: Mapping[str, Any]) -> bytes:
    """Return the list of a reference; a missing or different file raises a CheckpointError."""
    path = os.path.join(folder, reference["list"])
    try:
        with open(path, "rb") as file:
            kept = file.read(reference["bytes"])
    except OSError as error:
        raise CheckpointError(f"a list of the checkpoint cannot be read: {error}", hint=f"restore {path}") from error
    if len(kept) != reference["bytes"] or zlib.crc32(kept) != reference["crc"]:
        raise CheckpointError(
            f"the list {path} is not the one that the checkpoint refers to",
            expected=f"{reference['bytes']} bytes with checksum {reference['crc']}",
            hint="restore it, or start with a new checkpoint",
        )
    return kept


def _new_list(folder: str) -> str:
    os.makedirs(folder, exist_ok=True)
    number = 1 + max((int(name[:8]) for name in os.listdir(folder) if name[:8].isdigit()), default=0)
    while True:
        name = f"{number:08d}.jsonl"
        try:
            with open(os.path.join(folder, name), "xb"):
                pass
        except FileExistsError:  # another source of the same query
            number += 1
            continue
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
        return name
