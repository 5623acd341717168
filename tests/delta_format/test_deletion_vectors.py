"""Deletion vectors: what is written is read again, in every form that the format allows; what is damaged is refused."""

import dataclasses
import struct
import zlib

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyroaring import BitMap64

from upstream.conf.errors import TableError
from upstream.delta_format.deletion_vectors import (
    DeletionVector,
    copy_of,
    decode_vector,
    encode_vector,
    pack_vectors,
    put_back,
    read_vector,
)
from upstream.storage.folder import TableFolder

CONTAINER = 65_536
# Spans of rows that are dead: sparse and dense ones, at the edges of containers and over them.
SPANS = st.lists(st.tuples(st.integers(0, 3 * CONTAINER), st.integers(1, 6000)), max_size=6)


def mask(rows: int, spans: list[tuple[int, int]]) -> np.ndarray:
    dead = np.zeros(rows, dtype=np.bool_)
    for start, length in spans:
        dead[start : start + length] = True
    return dead


@given(st.integers(0, 3 * CONTAINER), SPANS, st.booleans())
@example(8190, [(0, 8190)], True)  # a container lists up to 4,096 rows, and is bits beyond
@example(8192, [(0, 8192)], True)
@example(8194, [(0, 8194)], True)
@example(3 * CONTAINER, [(5, 1), (3 * CONTAINER - 1, 1)], False)  # one without dead rows is left out
def test_it_is_what_the_library_of_these_bitmaps_writes(rows, spans, every_other):
    """Each reads what the other writes; where CRoaring makes no runs the bytes are the same."""
    dead = mask(rows, spans)
    dead[1::2] &= not every_other
    theirs = BitMap64(np.flatnonzero(dead).tolist())
    ours = encode_vector(dead)
    assert (decode_vector(ours, rows) == dead).all()
    assert BitMap64.deserialize(ours[4:]) == theirs
    if dead.any() and not theirs.get_statistics()["n_run_containers"]:
        assert ours[4:] == theirs.serialize()
    assert (decode_vector(ours[:4] + theirs.serialize(), rows) == dead).all()
    theirs.run_optimize()
    assert (decode_vector(ours[:4] + theirs.serialize(), rows) == dead).all()


def test_several_lie_in_one_file(tmp_path):
    masks = [mask(10, [(3, 2)]), mask(100_000, [(0, 70_000)])]
    path, content, found = pack_vectors([(encode_vector(dead), int(dead.sum())) for dead in masks], "vectors")
    (tmp_path / "vectors").mkdir()
    (tmp_path / path).write_bytes(content)
    folder = TableFolder(str(tmp_path))
    for dead, vector in zip(masks, found, strict=True):
        restored = DeletionVector.from_json(vector.to_json())
        assert (restored, restored.path) == (vector, path)
        assert (read_vector(folder, restored, len(dead)) == dead).all()
    with pytest.raises(TableError, match="another number of rows"):
        read_vector(folder, dataclasses.replace(found[0], cardinality=3), 10)
    with pytest.raises(TableError, match="its length"):
        read_vector(folder, dataclasses.replace(found[0], offset=5), 10)
    with pytest.raises(TableError, match="cannot be read for a file of 4 rows"):
        read_vector(folder, found[0], 4)
    first = DeletionVector(found[0].storage, found[0].place, None, found[0].size, found[0].cardinality)
    (tmp_path / path).write_bytes(content[1:])
    assert (read_vector(folder, first, 10) == masks[0]).all()
    for damaged in (content[: first.size], content[:4] + b"\x01" + content[5:]):
        (tmp_path / path).write_bytes(damaged)
        with pytest.raises(TableError, match="its length"):
            read_vector(folder, found[0], 10)
    (tmp_path / path).write_bytes(content[:20] + b"\xff" + content[21:])
    with pytest.raises(TableError, match="checksum"):
        read_vector(folder, found[0], 10)
    (tmp_path / path).unlink()
    with pytest.raises(FileNotFoundError):
        read_vector(folder, found[0], 10)


def test_the_example_of_the_format(tmp_path):
    """A vector in the log itself, and how the protocol names files."""
    inline = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 44, 6)
    assert np.flatnonzero(read_vector(TableFolder(str(tmp_path)), inline, 30)).tolist() == [3, 4, 7, 11, 18, 29]
    named = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    assert named.path == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    with pytest.raises(TableError, match="outside of it"):
        read_vector(TableFolder(str(tmp_path)), DeletionVector("p", "s3://elsewhere/x.bin", 4, 40, 6), 30)
    with pytest.raises(TableError, match="begins with"):
        decode_vector(b"\0" * 40, 30)


@pytest.mark.parametrize("rows", [1, 4096, 4097, CONTAINER - 1, CONTAINER, CONTAINER + 1, 2 * CONTAINER])
def test_the_edges_of_containers(rows):
    for dead in (mask(rows, [(0, rows)]), mask(rows, [(rows - 1, 1)]), mask(rows, [(0, 1)])):
        assert (decode_vector(encode_vector(dead), rows) == dead).all()
    with pytest.raises(TableError, match=f"for a file of {rows - 1} rows"):
        decode_vector(encode_vector(mask(rows, [(0, rows)])), rows - 1)


def with_runs(keys: list[int], begin: int, more: int, *, flags: bytes) -> bytes:
    """A 32-bit bitmap whose containers hold one run each."""
    head = struct.pack("<I", 12347 | (len(keys) - 1) << 16) + flags
    described = b"".join(struct.pack("<HH", key, more) for key in keys)
    offsets = b"\xff" * 4 * len(keys) if len(keys) >= 4 else b""
    return head + described + offsets + struct.pack("<HHH", 1, begin, more) * len(keys)


@pytest.mark.parametrize("count", [1, 3, 4, 8, 9])
def test_runs_of_several_containers(count):
    """From four containers on it is written down where each begins; each byte has the flags of eight."""
    flags = ((1 << count) - 1).to_bytes((count + 7) // 8, "little")
    data = struct.pack("<iqI", 1681511377, 1, 0) + with_runs(list(range(count)), 65_530, 5, flags=flags)
    expected = mask(count * CONTAINER, [(key * CONTAINER + 65_530, 6) for key in range(count)])
    assert (decode_vector(data, count * CONTAINER) == expected).all()
    with pytest.raises(TableError, match="a row beyond the last one"):
        decode_vector(data, count * CONTAINER - 1)


def test_a_run_of_a_whole_container_and_runs_beside_each_other():
    head = struct.pack("<iqI", 1681511377, 1, 0) + struct.pack("<I", 12347)
    whole = head + b"\x01" + struct.pack("<HHHHH", 0, 65_535, 1, 0, 65_535)
    assert decode_vector(whole, CONTAINER).all()
    spans = np.stack([np.arange(0, CONTAINER, 2), np.zeros(CONTAINER // 2)], axis=1).astype("<u2").tobytes()
    most = struct.pack("<iqII", 1681511377, 1, 0, 12347 | 1 << 16) + b"\x01"
    most += struct.pack("<HHHHH", 0, 32_767, 1, 0, 32_768) + spans + struct.pack("<H", 7)
    assert np.flatnonzero(decode_vector(most, CONTAINER + 8)).tolist() == [*range(0, CONTAINER, 2), CONTAINER + 7]
    two = head + b"\x01" + struct.pack("<HHHHHHH", 0, 3, 2, 1, 1, 4, 1)
    assert np.flatnonzero(decode_vector(two, 10)).tolist() == [1, 2, 4, 5]
    some = struct.pack("<I", 12347 | 1 << 16) + b"\x02" + struct.pack("<HHHH", 0, 1, 1, 2)
    mixed = struct.pack("<iqI", 1681511377, 1, 0) + some + struct.pack("<HH", 3, 8) + struct.pack("<HHH", 1, 2, 2)
    found = decode_vector(mixed, 2 * CONTAINER)
    assert np.flatnonzero(found).tolist() == [3, 8, CONTAINER + 2, CONTAINER + 3, CONTAINER + 4]


def test_bitmaps_follow_each_other():
    """One for each 2³² rows; here all but the last are for the first rows, so that a small file holds them."""
    rows = 2 * CONTAINER + 10
    dense = encode_vector(mask(rows, [(10, 4097)]))[12:]
    run = struct.pack("<I", 0) + with_runs([1], 5000, 2, flags=b"\x01")
    listed, last = (encode_vector(mask(rows, [(row, 1)]))[12:] for row in (2 * CONTAINER + 1, rows - 1))
    data = struct.pack("<iq", 1681511377, 4) + dense + run + listed + last
    expected = mask(rows, [(10, 4097), (CONTAINER + 5000, 3), (2 * CONTAINER + 1, 1), (rows - 1, 1)])
    assert (decode_vector(data, rows) == expected).all()
    beyond = struct.pack("<iqI", 1681511377, 1, 1) + listed[4:]
    with pytest.raises(TableError, match="cannot be read for a file of 131082 rows"):
        decode_vector(beyond, rows)


def test_what_is_no_bitmap_is_refused():
    with pytest.raises(TableError, match="unknown cookie 12345"):
        decode_vector(struct.pack("<iqII", 1681511377, 1, 0, 12345), 30)
    whole = encode_vector(mask(30, [(3, 2)]))
    for length in range(len(whole)):
        with pytest.raises(TableError, match="damaged"):
            decode_vector(whole[:length], 30)


def test_descriptors_as_the_log_has_them():
    value = {"storageType": "u", "pathOrInlineDv": "ab", "offset": 0, "sizeInBytes": 40, "cardinality": 6}
    vector = DeletionVector("u", "ab", 0, 40, 6)
    assert (DeletionVector.from_json(value), vector.to_json()) == (vector, value)
    del value["offset"]
    vector = dataclasses.replace(vector, offset=None)
    assert (DeletionVector.from_json(value), vector.to_json()) == (vector, value)
    named = DeletionVector("u", "^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    assert named.path == "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert dataclasses.replace(named, storage="i").path is None


def test_a_file_of_vectors_byte_by_byte():
    path, content, found = pack_vectors([(b"abc", 2), (b"defgh", 3)], "vectors")
    first = struct.pack(">i", 3) + b"abc" + struct.pack(">I", zlib.crc32(b"abc"))
    second = struct.pack(">i", 5) + b"defgh" + struct.pack(">I", zlib.crc32(b"defgh"))
    assert content == b"\x01" + first + second
    places = [(each.storage, each.offset, each.size, each.cardinality) for each in found]
    assert places == [("u", 1, 3, 2), ("u", 12, 5, 3)]
    assert {each.path for each in found} == {path}
    assert all(each.place.startswith("vectors") and len(each.place) == 27 for each in found)


def test_a_vector_that_somebody_removed_is_put_back_from_its_copy(tmp_path):
    dead = mask(10, [(3, 2)])
    path, content, (vector, _) = pack_vectors([(encode_vector(dead), 2)] * 2, "vectors")
    assert copy_of("a/b/c.bin") == "_upstream_vectors/c.bin"
    assert copy_of(path) == "_upstream_vectors/" + path.removeprefix("vectors/")
    for name in ("vectors", "_upstream_vectors"):
        (tmp_path / name).mkdir()
    (tmp_path / copy_of(path)).write_bytes(content)
    folder = TableFolder(str(tmp_path))
    assert (read_vector(folder, vector, 10) == dead).all()
    assert (tmp_path / path).read_bytes() == content
    (tmp_path / path).write_bytes(b"as it is")
    assert put_back(folder, [path]) == 0
    assert (tmp_path / path).read_bytes() == b"as it is"
    (tmp_path / path).unlink()
    other, _, _ = pack_vectors([(b"", 0)], "vectors")
    (tmp_path / copy_of(other)).write_bytes(b"other")
    assert put_back(folder, ["vectors/unknown.bin", path, other]) == 2
    assert (tmp_path / other).read_bytes() == b"other"
