"""Contents of files: fingerprints, line ends, blocks of whole lines, decompressed if needed; Parquet by row groups."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa

from ....conf.errors import FeedChangedError
from ....delta_format.scan import open_parquet

# Parsed at once. Larger ones gain nothing and cost memory.
BLOCK = 8 << 20
_STEP = 1 << 20
_HEAD = 256
_TAIL = 512

# Offset of its first byte, the bytes.
Block = tuple[int, bytes]
_MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}


def codec_of(file: BinaryIO, by_name: str | None) -> str | None:
    """Return how a file is compressed, by its name or its first bytes; None if it is not."""
    if by_name is not None:
        return by_name
    file.seek(0)
    start = file.read(4)
    return next((codec for magic, codec in _MAGIC.items() if start.startswith(magic)), None)


def fingerprint(file: BinaryIO, head: int, to: int) -> str:
    """Return a short hash of a file's first `head` bytes and of the last bytes before `to`."""
    file.seek(0)
    digest = hashlib.blake2b(file.read(head), digest_size=6)
    start = max(0, to - _TAIL)
    file.seek(start)
    digest.update(file.read(to - start))
    return digest.hexdigest()


def head_length(size: int, header: int) -> int:
    """Return how many first bytes the fingerprint covers, at least the whole header."""
    return max(min(_HEAD, size), header)


def line_ends(block: bytes) -> int:
    """Return where the last whole line of a block ends; 0 if none does."""
    return block.rfind(b"\n") + 1


def last_line_end(file: BinaryIO, low: int, high: int) -> int:
    """Return where the last whole line of the bytes [low, high) ends; `low` if none does."""
    step = 4096
    end = high
    while end > low:
        start = max(low, end - step)
        file.seek(start)
        found = file.read(end - start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end, step = start, _STEP
    return low


def line_end_after(file: BinaryIO, offset: int, high: int) -> int:
    """Return where the line with the byte at `offset` ends; `high` if that comes first."""
    step = 4096
    file.seek(offset)
    while offset < high:
        block = file.read(min(step, high - offset))
        if not block:
            break
        found = block.find(b"\n")
        if found >= 0:
            return offset + found + 1
        offset, step = offset + len(block), _STEP
    return high


def nth_line_end(file: BinaryIO, low: int, high: int, count: int) -> tuple[int, int]:
    """Return where line number `count` of the bytes [low, high) ends, and how many lines end up to there."""
    import numpy as np

    file.seek(low)
    seen = 0
    while low < high:
        block = file.read(min(_STEP, high - low))
        if not block:
            break
        here = block.count(b"\n")
        if seen + here >= count:
            ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10)
            return low + int(ends[count - seen - 1]) + 1, count
        seen, low = seen + here, low + len(block)
    return low, seen


def plain_blocks(
    file: BinaryIO, path: str, low: int, high: int, cut: Callable[[bytes], int] = line_ends, *, size: int = BLOCK
) -> Iterator[Block]:
    """Yield the bytes [low, high) in blocks of whole lines; the last one ends at `high`."""
    file.seek(low)
    rest = b""
    while low + len(rest) < high:
        more = file.read(min(size, high - low - len(rest)))
        if not more:
            raise FeedChangedError(
                f"file {path} ends at byte {low + len(rest)}, and bytes up to {high} of it were to be read: it has "
                "shrunk",
                hint="restore the file and restart, or start with a new checkpoint",
            )
        block = rest + more if rest else more
        end = len(block) if low + len(block) == high else cut(block)
        if end:
            yield low, block[:end] if end < len(block) else block
            low += end
        rest = block[end:]


def compressed_blocks(
    file: BinaryIO, codec: str, cut: Callable[[bytes], int] = line_ends, *, size: int = BLOCK
) -> Iterator[Block]:
    """Yield a compressed file's text in blocks of whole lines; raise OSError if it is damaged or truncated."""
    file.seek(0)
    low, rest = 0, b""
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
        while True:
            pieces, length = [rest], len(rest)
            wanted = size
            while wanted > 0 and (more := stream.read(wanted)):
                pieces.append(more)
                wanted -= len(more)
            block = b"".join(pieces)
            if len(block) == length:
                break
            end = cut(block)
            if end:
                yield low, block[:end]
                low += end
            rest = block[end:]
    if rest:
        yield low, rest


def count_lines(file: BinaryIO, codec: str) -> int:
    """Return the maximum of a compressed file's lines by decompressing it; raise OSError if it is damaged."""
    if file.seek(0, 2) == 0:
        raise OSError("it is empty")
    lines, last = 0, b"\n"
    file.seek(0)
    with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
        while block := stream.read(_STEP):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


_GROUP_ROWS = 262_144


@dataclasses.dataclass(frozen=True)
class Footer:
    """The footer of a finished Parquet file."""

    schema: pa.Schema
    rows: Sequence[int]  # of each row group
    sizes: Sequence[int]  # of each row group, in bytes


def footer(file: BinaryIO) -> Footer | None:
    """Return the footer of a file, or ``None`` if it is not written yet."""
    try:
        with open_parquet(file) as found:
            groups = [found.metadata.row_group(number) for number in range(found.metadata.num_row_groups)]
            sizes = [
                sum(group.column(each).total_compressed_size for each in range(group.num_columns)) for group in groups
            ]
            return Footer(found.schema_arrow, [group.num_rows for group in groups], sizes)
    except pa.ArrowInvalid:
        return None


def read_groups(source: str | BinaryIO, path: str, low: int, high: int, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the rows of the row groups [low, high), in pieces; `path` names the source."""
    try:
        with open_parquet(source, memory_map=isinstance(source, str)) as file:
            batches: Any = file.iter_batches(
                _GROUP_ROWS, row_groups=list(range(low, high)), columns=list(columns), use_threads=False
            )
            for batch in batches:
                yield pa.Table.from_batches([batch])
    except (pa.ArrowInvalid, OSError) as error:
        raise FeedChangedError(
            f"row groups {low} to {high} of {path} cannot be read: {error}",
            hint="restore the file and restart, or start with a new checkpoint",
        ) from error
