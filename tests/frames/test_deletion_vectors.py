"""Deletion vectors: what is written is read again, in every form that the format allows; what is damaged is refused."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import TableError
from upstream.frames.deletion_vectors import (
    DeletionVector,
    decode_vector,
    encode_vector,
    pack_vectors,
    read_vector,
)
from upstream.frames.table_folder import TableFolder

CONTAINER = 65_536
# Spans of rows that are dead: sparse and dense ones, at the edges of containers and over them.
SPANS = st.lists(st.tuples(st.integers(0, 3 * CONTAINER), st.integers(1, 6000)), max_size=6)


def mask(rows: int, spans: list[tuple[int, int]]) -> np.ndarray:
    dead = np.zeros(rows, dtype=np.bool_)
    for start, length in spans:
        dead[start : start + length] = True
    return dead


@given(st.integers(0, 3 * CONTAINER), SPANS)
def test_what_is_written_is_read(rows: int, spans: list[tuple[int, int]]) -> None:
    dead = mask(rows, spans)
    assert (decode_vector(encode_vector(dead), rows) == dead).all()


@given(SPANS)
def test_runs_are_read(spans: list[tuple[int, int]]) -> None:
    """Other writers put runs of rows down as such; here every container has runs."""
    rows = 4 * CONTAINER
    dead = mask(rows, spans)
    keys = [key for key in range(4) if dead[key * CONTAINER : (key + 1) * CONTAINER].any()]
    if not keys:
        return
    described, containers = b"", b""
    for key in keys:
        here = dead[key * CONTAINER : (key + 1) * CONTAINER].astype(np.int8)
        edges = np.flatnonzero(np.diff(here, prepend=0, append=0))
        starts, ends = edges[::2], edges[1::2]
        pairs = np.stack([starts, ends - starts - 1], axis=1).astype("<u2")
        described += struct.pack("<HH", key, int(here.sum()) - 1)
        containers += struct.pack("<H", len(starts)) + pairs.tobytes()
    cookie = struct.pack("<I", 12347 | (len(keys) - 1) << 16) + bytes([(1 << len(keys)) - 1])
    offsets = b"\0" * 4 * len(keys) if len(keys) >= 4 else b""
    data = struct.pack("<iqI", 1681511377, 1, 0) + cookie + described + offsets + containers
    assert (decode_vector(data, rows) == dead).all()


@pytest.mark.parametrize("count", [1, 4095, 4096, 4097, 32768])
def test_a_container_lists_up_to_4096_rows_and_is_bits_beyond(count: int) -> None:
    """The form follows from the number of rows alone: a reader has nothing else to tell it by."""
    rows = np.arange(0, 2 * count, 2)
    dead = np.zeros(CONTAINER, dtype=np.bool_)
    dead[rows] = True
    data = encode_vector(dead)
    listed = rows.astype("<u2").tobytes()
    bits = bytes(sum(1 << bit for bit in range(8) if dead[at + bit]) for at in range(0, CONTAINER, 8))
    # Magic, number of bitmaps, key; cookie, number of containers; key and cardinality; offset; container.
    assert data[: -len(listed if count <= 4096 else bits)] == struct.pack(
        "<iqIIIHHI", 1681511377, 1, 0, 12346, 1, 0, count - 1, 16
    )
    assert data.endswith(listed if count <= 4096 else bits)


def test_several_lie_in_one_file(tmp_path: Path) -> None:
    masks = [mask(10, [(3, 2)]), mask(100_000, [(0, 70_000)])]
    path, content, found = pack_vectors([(encode_vector(dead), int(dead.sum())) for dead in masks], "vectors")
    (tmp_path / "vectors").mkdir()
    (tmp_path / path).write_bytes(content)
    folder = TableFolder(str(tmp_path))
    for dead, vector in zip(masks, found, strict=True):
        told = DeletionVector.from_json(vector.to_json())
        assert (told, told.path) == (vector, path)
        assert (read_vector(folder, told, len(dead)) == dead).all()
    with pytest.raises(TableError, match="another number of rows"):
        read_vector(folder, dataclasses.replace(found[0], cardinality=3), 10)
    with pytest.raises(TableError, match="its length"):
        read_vector(folder, dataclasses.replace(found[0], offset=5), 10)
    with pytest.raises(TableError, match="cannot be read for a file of 4 rows"):
        read_vector(folder, found[0], 4)
    (tmp_path / path).write_bytes(content[:20] + b"\xff" + content[21:])
    with pytest.raises(TableError, match="checksum"):
        read_vector(folder, found[0], 10)
    (tmp_path / path).unlink()
    with pytest.raises(FileNotFoundError):
        read_vector(folder, found[0], 10)


def test_the_example_of_the_format(tmp_path: Path) -> None:
    """A vector in the log itself, and how the protocol names files."""
    inline = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 44, 6)
    assert np.flatnonzero(read_vector(TableFolder(str(tmp_path)), inline, 30)).tolist() == [3, 4, 7, 11, 18, 29]
    named = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    assert named.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    with pytest.raises(TableError, match="outside of it"):
        read_vector(TableFolder(str(tmp_path)), DeletionVector("p", "s3://elsewhere/x.bin", 4, 40, 6), 30)
    with pytest.raises(TableError, match="begins with"):
        decode_vector(b"\0" * 40, 30)
