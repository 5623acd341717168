"""Deletion vectors: the dead rows of a data file ("Deletion Vector Format" in the Delta protocol)."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..conf.errors import TableError
from ..storage.folder import TableFolder

VECTORS = "upstreamvectors"
"""The folder of deletion vectors. Trino (476) accepts only letters in its name, so VACUUM sees the folder; Spark's
VACUUM keeps vectors that are in use.
"""
COPIES = "_upstream_vectors"
"""The folder of their copies: delta-rs' VACUUM (1.6.6, full=True) removes vectors that are in use."""

Mask = npt.NDArray[np.bool_]

_MAGIC = 1681511377
_PLAIN_COOKIE, _RUN_COOKIE = 12346, 12347
_CONTAINER = 1 << 16
_MOST_IN_ARRAY = 4096
# Bitmaps with runs have the containers' offsets only from so many containers on.
_OFFSETS_FROM = 4
_FILE_VERSION = b"\x01"
# Base85 as ZeroMQ spells it; Python's own b85encode has other characters for the same digits.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TO_Z85, _TO_B85 = bytes.maketrans(_B85, _Z85), bytes.maketrans(_Z85, _B85)
_UUID_LETTERS = 20


@dataclasses.dataclass(frozen=True)
class DeletionVector:
    """The descriptor of a data file's deletion vector in the table's log."""

    storage: str  # ``u``: in a file of the table, named by an id; ``i``: in the log; ``p``: in a file elsewhere
    place: str  # the id, the vector or the address, by `storage`
    offset: int | None  # the vector's first byte in the file
    size: int  # in bytes
    cardinality: int  # the number of dead rows

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> DeletionVector:
        return cls(
            value["storageType"],
            value["pathOrInlineDv"],
            value.get("offset"),
            value["sizeInBytes"],
            value["cardinality"],
        )

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"storageType": self.storage, "pathOrInlineDv": self.place}
        if self.offset is not None:
            value["offset"] = self.offset
        return {**value, "sizeInBytes": self.size, "cardinality": self.cardinality}

    @property
    def path(self) -> str | None:
        """The vector's file, relative to the table; None if it is in no file of the table."""
        if self.storage != "u":
            return None
        prefix, letters = self.place[:-_UUID_LETTERS], self.place[-_UUID_LETTERS:]
        name = f"deletion_vector_{uuid.UUID(bytes=_from_z85(letters))}.bin"
        return f"{prefix}/{name}" if prefix else name


def pack_vectors(vectors: Sequence[tuple[bytes, int]], folder: str) -> tuple[str, bytes, list[DeletionVector]]:
    """Pack vectors, with cardinalities, into a file in `folder`; return its path, content, and their descriptors."""
    name = uuid.uuid4()
    letters = _to_z85(name.bytes)
    parts = [_FILE_VERSION]
    at = len(_FILE_VERSION)
    found: list[DeletionVector] = []
    for data, cardinality in vectors:
        found.append(DeletionVector("u", folder + letters, at, len(data), cardinality))
        parts += [struct.pack(">i", len(data)), data, struct.pack(">I", zlib.crc32(data))]
        at += len(data) + 8
    return f"{folder}/deletion_vector_{name}.bin", b"".join(parts), found


def read_vector(folder: TableFolder, vector: DeletionVector, rows: int) -> Mask:
    """Return which of a data file's `rows` rows are dead.

    A missing vector file is restored from its copy; without one, a FileNotFoundError is raised.
    """
    if vector.storage == "i":
        return decode_vector(_from_z85(vector.place)[: vector.size], rows)
    path = vector.path
    if path is None:
        raise TableError(
            f"a deletion vector of the table at {folder.location} lies outside of it, at {vector.place}",
            expected="vectors in files of the table itself",
            hint="run REORG TABLE … APPLY (PURGE) on it from Spark",
        )
    at = vector.offset or 0
    try:
        content = folder.read_range(path, at, vector.size + 8)
    except FileNotFoundError:
        put_back(folder, [path])
        content = folder.read_range(path, at, vector.size + 8)
    data = content[4:-4]
    stored = (vector.size, zlib.crc32(data))
    if len(content) != vector.size + 8 or struct.unpack(">i", content[:4])[0] != stored[0]:
        raise _damaged(f"{path} at {at}", "its length is another than the log says")
    if struct.unpack(">I", content[-4:])[0] != stored[1]:
        raise _damaged(f"{path} at {at}", "its checksum is not that of its content")
    mask = decode_vector(data, rows)
    if int(np.count_nonzero(mask)) != vector.cardinality:
        raise _damaged(f"{path} at {at}", "it marks another number of rows than the log says")
    return mask


def copy_of(path: str) -> str:
    """Return the path of the copy of a vector's file, in a folder that no VACUUM cleans."""
    return f"{COPIES}/{path.rpartition('/')[2]}"


def put_back(folder: TableFolder, paths: Iterable[str]) -> int:
    """Restore missing vectors from copies; return how many. VACUUM of delta-rs (1.6.6, ``full``) removes used ones."""
    count = 0
    for path in paths:
        if not folder.has(path):
            with contextlib.suppress(FileNotFoundError):  # there is no copy of what others wrote
                folder.write(path, folder.read(copy_of(path)))
                count += 1
    return count


def encode_vector(dead: Mask) -> bytes:
    """Serialize a mask of dead rows as a deletion vector."""
    # One 32-bit bitmap, which is for rows 0 to 2³² - 1: no file that is written here comes near as many.
    return struct.pack("<iqI", _MAGIC, 1, 0) + _encode_bitmap(dead)


def decode_vector(data: bytes, rows: int) -> Mask:
    """Return the mask of dead rows from a serialized vector, for a data file of `rows` rows."""
    dead = np.zeros(rows, dtype=np.bool_)
    try:
        magic, bitmaps = struct.unpack_from("<iq", data)
        if magic != _MAGIC:
            raise _damaged("a deletion vector", f"it begins with {magic} where {_MAGIC} is expected")
        at = 12
        for _ in range(bitmaps):
            (high,) = struct.unpack_from("<I", data, at)
            at = _decode_bitmap(data, at + 4, dead, high << 32)
    except (struct.error, ValueError, IndexError) as error:
        raise _damaged("a deletion vector", f"it cannot be read for a file of {rows} rows ({error})") from error
    return dead


def _encode_bitmap(dead: Mask) -> bytes:
    keys: list[int] = []
    sizes: list[int] = []
    containers: list[bytes] = []
    for key, start in enumerate(range(0, len(dead), _CONTAINER)):
        here = dead[start : start + _CONTAINER]
        count = int(np.count_nonzero(here))
        if count == 0:
            continue
        keys.append(key)
        sizes.append(count)
        if count <= _MOST_IN_ARRAY:
            containers.append(np.flatnonzero(here).astype("<u2").tobytes())
        else:
            bits = np.packbits(here, bitorder="little").tobytes()
            containers.append(bits.ljust(_CONTAINER // 8, b"\0"))
    described = np.empty((len(keys), 2), dtype="<u2")
    described[:, 0] = keys
    described[:, 1] = np.array(sizes) - 1
    first = 8 + 8 * len(keys)
    offsets = first + np.cumsum([0, *map(len, containers)])[: len(keys)]
    head = struct.pack("<II", _PLAIN_COOKIE, len(keys))
    return b"".join([head, described.tobytes(), offsets.astype("<u4").tobytes(), *containers])


def _decode_bitmap(data: bytes, at: int, dead: Mask, base: int) -> int:
    """Mark the rows of one 32-bit bitmap; return its end."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    if cookie & 0xFFFF == _RUN_COOKIE:
        count = (cookie >> 16) + 1
        flags = np.frombuffer(data, np.uint8, (count + 7) // 8, at)
        runs = np.unpackbits(flags, bitorder="little")[:count]
        at += len(flags)
    elif cookie == _PLAIN_COOKIE:
        (count,) = struct.unpack_from("<I", data, at)
        runs = np.zeros(count, dtype=np.uint8)
        at += 4
    else:
        raise ValueError(f"unknown cookie {cookie}")
    described = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2)
    at += 4 * count
    if cookie == _PLAIN_COOKIE or count >= _OFFSETS_FROM:
        at += 4 * count  # where each container begins: they follow each other anyway
    for (key, last), run in zip(described.tolist(), runs.tolist(), strict=True):
        start = base + key * _CONTAINER
        if run:
            (pieces,) = struct.unpack_from("<H", data, at)
            spans = np.frombuffer(data, "<u2", 2 * pieces, at + 2).reshape(-1, 2)
            at += 2 + 4 * pieces
            # +1 where a run begins and -1 behind its end: summed up, 1 within runs.
            edges = np.zeros(_CONTAINER + 1, dtype=np.int8)
            edges[spans[:, 0]] = 1
            edges[spans.sum(axis=1) + 1] -= 1
            _mark(dead, start, np.cumsum(edges[:-1]))
        elif last < _MOST_IN_ARRAY:
            dead[start + np.frombuffer(data, "<u2", last + 1, at).astype(np.int64)] = True
            at += 2 * (last + 1)
        else:
            bits = np.frombuffer(data, np.uint8, _CONTAINER // 8, at)
            _mark(dead, start, np.unpackbits(bits, bitorder="little"))
            at += _CONTAINER // 8
    return at


def _mark(dead: Mask, start: int, container: npt.NDArray[np.integer[Any]]) -> None:
    """Copy a container, with 1 for each dead row, into the mask; beyond the file's last row it must be empty."""
    end = min(start + _CONTAINER, len(dead))
    if start >= len(dead) or container[end - start :].any():
        raise ValueError("a row beyond the last one")
    dead[start:end] = container[: end - start]


def _to_z85(raw: bytes) -> str:
    return base64.b85encode(raw).translate(_TO_Z85).decode()


def _from_z85(letters: str) -> bytes:
    return base64.b85decode(letters.encode().translate(_TO_B85))


def _damaged(what: str, why: str) -> TableError:
    return TableError(
        f"{what} is damaged: {why}",
        expected="a deletion vector as the Delta format describes it",
        hint="restore the file from a backup, or RESTORE the table to an earlier version from Spark",
    )
