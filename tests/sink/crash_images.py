"""What a disk may hold after a power cut, by the system calls of a process up to then.

The calls are read from strace (``-f -y -xx``). Of a file the disk holds for sure what was written before its last
fsync; of a folder the entries that were in it at its last fsync. What else it holds is not promised, so two images are
made of each moment:

- `lost`: nothing that was not synced is there, neither contents nor entries; what was removed or renamed without a sync
  is as before.
- `torn`: all entries are there as the process saw them, and contents that were not synced are not: the files are empty.
"""

import dataclasses
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

TRACED = (
    "openat,creat,write,pwrite64,writev,pwritev,ftruncate,rename,renameat,renameat2,link,linkat,unlink,unlinkat,mkdir,mkdirat,rmdir,"
    "fsync,fdatasync,copy_file_range,sendfile,fallocate"
)
_LINE = re.compile(r"^(?:\[pid +)?(\d+)\]? +(.*)$")
_RESUMED = re.compile(r"<\.\.\. \w+ resumed>(.*)")
_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?')
_AT = re.compile(r"^(?:AT_FDCWD|\d+)<((?:\\x[0-9a-f]{2})*)>")


@dataclasses.dataclass
class _File:
    live: bytearray = dataclasses.field(default_factory=bytearray)
    synced: bytes = b""


class Disk:
    """The contents and entries below a folder, as the process sees them and as they are promised."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.live: dict[str, _File | None] = {root: None}  # None is a folder
        self.kept: dict[str, _File | None] = {root: None}

    def inside(self, path: str) -> bool:
        return path == self.root or path.startswith(self.root + "/")

    def truncated(self, path: str, length: int = 0) -> None:
        file = self.live.get(path)
        if file is not None:
            del file.live[length:]

    def wrote(self, path: str, content: bytes, at: int | None) -> None:
        file = self.live.get(path.removesuffix(" (deleted)"))
        if file is None:
            return
        at = len(file.live) if at is None else at
        file.live[at : at + len(content)] = content

    def synced(self, path: str) -> None:
        file = self.live.get(path)
        if file is not None:
            file.synced = bytes(file.live)
            return
        for each in [each for each in self.kept if os.path.dirname(each) == path and each not in self.live]:
            del self.kept[each]
        for each, held in self.live.items():
            if os.path.dirname(each) == path:
                self.kept[each] = held

    def renamed(self, old: str, new: str) -> None:
        for each in [each for each in self.live if each == old or each.startswith(old + "/")]:
            self.live[new + each[len(old) :]] = self.live.pop(each)

    def image(self, kind: str) -> dict[str, bytes | None]:
        """The entries with their contents; None is a folder."""
        entries = self.kept if kind == "lost" else self.live
        return {
            path: None if file is None else file.synced
            for path, file in entries.items()
            if all(above in entries for above in _above(path, self.root))
        }

    def put(self, image: dict[str, bytes | None], place: Path) -> None:
        """Build the image in an empty folder, in the place of the root."""
        shutil.rmtree(place, ignore_errors=True)
        for path in sorted(image):
            content, where = image[path], place / os.path.relpath(path, self.root)
            if content is None:
                where.mkdir(parents=True, exist_ok=True)
            else:
                where.write_bytes(content)


def moments(trace: Path, root: str) -> Iterator[tuple[Disk, str]]:
    """The disk after each call that changed or synced it, and what the process wrote outside the root by that call."""
    disk = Disk(root)
    begun: dict[str, str] = {}
    for line in trace.read_text(errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None:
            continue
        pid, rest = found.groups()
        if rest.endswith("<unfinished ...>"):
            begun[pid] = rest.removesuffix("<unfinished ...>").rstrip()
            continue
        resumed = _RESUMED.match(rest)
        call = _CALL.match(begun.pop(pid, "") + resumed.group(1) if resumed else rest)
        if call is None or int(call.group(3)) < 0:
            continue
        outside = _apply(disk, call.group(1), call.group(2), int(call.group(3)))
        if outside is not None:
            yield disk, outside


def _apply(disk: Disk, name: str, given: str, answer: int) -> str | None:
    """What the call wrote outside the root, an empty text if it was inside; None if it is of no account."""
    texts = [_bytes(text) for text, _ in _TEXT.findall(given)]
    at = _AT.match(given)
    path = _bytes(at.group(1)).decode() if at else ""
    if name in ("write", "pwrite64"):
        if not disk.inside(path):
            return texts[0].decode(errors="replace") if texts and path.endswith("/acknowledged") else None
        assert '"...' not in given, "strace has cut what was written"
        disk.wrote(path, texts[0][:answer], int(given.rsplit(",", 1)[1]) if name == "pwrite64" else None)
        return ""
    if name in ("fsync", "fdatasync"):
        if disk.inside(path):
            disk.synced(path)
            return ""
        return None
    if name == "ftruncate":
        if disk.inside(path):
            disk.truncated(path, int(given.rsplit(",", 1)[1]))
            return ""
        return None
    places = [_absolute(text.decode(), path) for text in texts]
    if not any(disk.inside(place) for place in places):
        return None
    assert name not in ("writev", "pwritev", "copy_file_range", "sendfile"), f"{name} is not followed"
    if name in ("openat", "creat"):
        if "O_CREAT" in given or name == "creat":
            disk.live.setdefault(places[0], _File())
        if "O_TRUNC" in given:
            disk.truncated(places[0])
        return "" if "O_CREAT" in given else None
    if name.startswith("mkdir"):
        disk.live[places[0]] = None
    elif name.startswith("rename"):
        disk.renamed(*places)
    elif name.startswith("link"):
        disk.live[places[1]] = disk.live[places[0]]
    elif name.startswith(("unlink", "rmdir")):
        disk.live.pop(places[0], None)
    return ""


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _absolute(path: str, below: str) -> str:
    return os.path.normpath(path if path.startswith("/") else os.path.join(below, path))


def _above(path: str, root: str) -> Iterator[str]:
    while path != root:
        path = os.path.dirname(path)
        yield path
