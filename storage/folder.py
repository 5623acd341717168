"""A table's or a checkpoint's folder, on a disk or in an object store."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

from ..conf.errors import TableError, UpstreamError
from ..conf.locations import absolute_location, is_remote
from ..conf.secrets import STORAGE, masked, secrets_of
from .object_store import put_if_absent, puts_refused

T = TypeVar("T")
U = TypeVar("U")

# An object store answers each request after some milliseconds, however many are under way.
_AT_ONCE = 16
# A disk combines concurrent syncs.
_SYNCS_AT_ONCE = 16
_PUTS = 3
# How delta-rs sets off the causes of an error, for terminals.
_CAUSE = re.compile(r"\s*\x1b\[[0-9;]*m↳\x1b\[0m\s*")


_SCHEME = re.compile(r"[A-Za-z][\w+.-]*:/")


def is_inside(path: str) -> bool:
    """Return whether a file that a table names is in the table's folder; a shallow clone names files of another."""
    return not path.startswith("/") and not _SCHEME.match(path) and ".." not in path.split("/")


class FolderEntry(NamedTuple):
    """An entry of a folder."""

    name: str
    is_folder: bool
    size: int  # in bytes; 0 for a folder
    modified_us: int  # microseconds since the epoch; 0 for a folder


@dataclasses.dataclass
class TableFolder:
    """A table's or a checkpoint's folder, and access to its files by their paths in it."""

    location: str  # the absolute path, or the address of a folder that is not on a local disk
    # options of the object store, which are never shown
    storage: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    durable: bool = False  # writes wait for the disk, to survive a power cut; a store keeps what it confirmed

    @property
    def is_local(self) -> bool:
        """True if the folder is on a disk of this machine, or one mounted there."""
        return not is_remote(self.location)

    def below(self, path: str) -> TableFolder:
        return TableFolder(f"{self.location}/{path}", self.storage, self.durable)

    def place(self, path: str) -> tuple[str, Any]:
        """Return a file's path and Arrow's file system, None for local files. Paths may be absolute, or ``file:``."""
        if self.is_local:
            return os.path.join(self.location, re.sub("^file:(?://)?(?=/)", "", path)), None
        return path, _connected(self.location, tuple(sorted(self.storage.items())))

    def read(self, path: str) -> bytes:
        where, filesystem = self.place(path)
        if filesystem is None:
            with open(where, "rb") as file:
                return file.read()
        with filesystem.open_input_stream(where, compression=None) as stream:
            return bytes(stream.read())

    def read_range(self, path: str, start: int, count: int) -> bytes:
        """Return `count` bytes of a file from `start`, or fewer at its end."""
        where, filesystem = self.place(path)
        if filesystem is None:
            with open(where, "rb") as file:
                file.seek(start)
                return file.read(count)
        with filesystem.open_input_file(where) as stream:
            stream.seek(start)
            return bytes(stream.read(count))

    def write(self, path: str, content: bytes) -> None:
        """Write a whole file. If the process dies, a disk may have a part of it, an object store has nothing."""
        with self.opened_to_write(path, len(content) + 1) as stream:
            stream.write(content)

    def opened_to_write(self, path: str, buffer_size: int | None = None) -> Any:
        """Open a new file as an Arrow stream to be closed. Python's bytes need a `buffer_size` in object stores."""
        where, filesystem = self.place(path)
        if filesystem is not None:
            # Unbuffered, Arrow would hand over a buffer of its own, and the store's client takes bytes.
            return filesystem.open_output_stream(where, compression=None, buffer_size=buffer_size)
        import pyarrow as pa

        try:
            return pa.OSFile(where, "wb")
        except FileNotFoundError:  # the folder is there but for its first file
            os.makedirs(os.path.dirname(where), exist_ok=True)
            return pa.OSFile(where, "wb")

    def put_new(self, path: str, content: bytes) -> bool:
        """Write a whole file unless its name is taken; return False if it is, by another content.

        No part of the file remains if the process dies. The folder must exist, and the content must include a unique
        id. An OSError means that the file cannot be written, or that the store does not confirm it. If puts are
        impossible, it raises the error of :meth:`puts_refused`.
        """
        refusal = self.puts_refused()
        if refusal is not None:
            raise refusal
        failed = OSError(f"the store rejects {path} as existing, and does not have it")
        for _ in range(_PUTS):
            try:
                if self._put_if_absent(path, content):
                    return True
            except OSError as error:
                if self.is_local:
                    raise
                failed = error
            # The store may have put it despite a refusal or no answer: the client repeats a request whose answer is
            # lost.
            with contextlib.suppress(FileNotFoundError):
                return self.read(path) == content
            # It is not there: S3 can refuse both of two concurrent puts, and a request may still be under way. The next
            # attempt settles it.
        raise failed

    def puts_refused(self) -> UpstreamError | None:
        """Return the reason why :meth:`put_new` is impossible here, or None.

        It may be a missing package, a store without conditional puts, or options that do not reach the store. A process
        tries a store once, and again a minute after a refusal.
        """
        return None if self.is_local else puts_refused(self.location, self.storage, self.masked)

    def _put_if_absent(self, path: str, content: bytes) -> bool:
        where, _ = self.place(path)
        if not self.is_local:
            try:
                return put_if_absent(self.location, self.storage, path, content)
            except OSError as error:
                raise OSError(self.masked(error)) from None
        # No reader of a log takes the name for an entry. A link is atomic, and never replaces another file.
        written = os.path.join(os.path.dirname(where), f".{uuid.uuid4()}.tmp")
        try:
            with open(written, "wb") as file:
                file.write(content)
                if self.durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.link(written, where)
            if self.durable:
                sync_file(os.path.dirname(where))
        except FileExistsError:
            return False
        finally:
            with contextlib.suppress(OSError):
                os.remove(written)
        return True

    def sync(self, paths: Iterable[str]) -> None:
        """Wait until files and their folders' entries are on the disk, if the folder is `durable` and local."""
        if self.durable and self.is_local:
            sync_paths(self.location, paths)

    def has(self, path: str) -> bool:
        where, filesystem = self.place(path)
        if filesystem is None:
            return os.path.exists(where)
        import pyarrow.fs as pa_fs

        return filesystem.get_file_info(where).type == pa_fs.FileType.File

    def size(self, path: str) -> int:
        """Return the length of a file in bytes; 0 if there is none."""
        where, filesystem = self.place(path)
        if filesystem is not None:
            return filesystem.get_file_info(where).size or 0
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(where)
        return 0

    def names(self, folder: str) -> list[str]:
        """Return the names of the files in a folder; none if there is no such folder."""
        if not self.is_local:
            return [each.name for each in self.listing(folder) if not each.is_folder]
        found: list[str] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(self.location, folder)) as entries:
            for entry in entries:
                with _absent_passed():
                    if not entry.is_dir():  # without a look at each file
                        found.append(entry.name)
        return found

    def listing(self, path: str = "") -> list[FolderEntry]:
        """Return the direct content of a folder, in no order; none if there is no such folder."""
        where, filesystem = self.place(path)
        if filesystem is not None:
            return _listing_of(filesystem, where.rstrip("/"))
        found: list[FolderEntry] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(where) as entries:
            for entry in entries:
                with _absent_passed():
                    status = entry.stat()
                    listed = (True, 0, 0) if entry.is_dir() else (False, status.st_size, status.st_mtime_ns // 1000)
                    found.append(FolderEntry(entry.name, *listed))
        return found

    def remove(self, paths: Iterable[str]) -> None:
        """Delete unneeded files inside of the folder. Ignore failures: the next attempt or VACUUM removes them."""
        self.each(self._remove, filter(is_inside, paths))

    def each(self, work: Callable[[U], T], things: Iterable[U]) -> list[T]:
        """Return the results of `work` on a file for `things`, in order: several at once in an object store."""
        chosen = list(things)
        if self.is_local or len(chosen) < 2:
            return [work(each) for each in chosen]
        self.place("")  # connected once, not by each thread
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(work, chosen))

    def _remove(self, path: str) -> None:
        with contextlib.suppress(OSError):
            where, filesystem = self.place(path)
            if filesystem is None:
                os.remove(where)
            else:
                filesystem.delete_file(where)

    def masked(self, message: object) -> str:
        """Return a message on one line, without the secrets among the storage options."""
        return masked(_CAUSE.sub(": ", str(message)).strip(), self._secrets())

    def masked_error(self, error: UpstreamError) -> UpstreamError:
        """Return an error without the secrets among the storage options, even in its causes."""
        if not self._tells(error):
            return error
        parts = (self.masked(part) for part in (error.expected, error.hint))
        return type(error)(self.masked(error.problem), **dict(zip(("expected", "hint"), parts, strict=True)))

    @contextlib.contextmanager
    def guarded(self) -> Generator[None, None, None]:
        """Mask secrets in errors of the block. A failing object store is a TableError with advice; a disk's stay."""
        try:
            yield
        except UpstreamError as error:
            if not self._tells(error):
                raise
            raise self.masked_error(error) from None
        except Exception as error:
            if self.is_local or not (self._tells(error) or _of_store(error)):
                raise
            # Nothing is chained: a traceback would show what is masked here.
            raise TableError(
                f"the object store fails at {self.location}: {self.masked(error)}",
                expected="a bucket that the storage options permit to list, read and write",
                hint="correct the address, or the options that begin with `storage.` (docs/readers.md); a restarted "
                "query repeats the batch",
            ) from None

    def _secrets(self) -> list[str]:
        """Return the secret option values, longest first: one may be part of another."""
        return secrets_of({STORAGE + name: value for name, value in self.storage.items()})

    def _tells(self, error: BaseException) -> bool:
        secrets, each = self._secrets(), error
        while each is not None:
            if any(secret in str(each) for secret in secrets):
                return True
            each = each.__cause__ or each.__context__
        return False


@contextlib.contextmanager
def _absent_passed() -> Generator[None]:
    """Pass over an entry that another process has just removed, or a link that leads nowhere."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise


def sync_file(path: str) -> None:
    """Wait until a file, or the entries of a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sync_paths(root: str, paths: Iterable[str]) -> None:
    """Wait until files below `root` are on the disk, with the entries of all folders that lead to them, `root`
    included.

    An OSError means that a file is gone or the disk failed; the state of the files is then unknown.
    """
    files = sorted(set(paths))
    if not files:
        return
    folders = {""}
    for path in files:
        while path := os.path.dirname(path):
            folders.add(path)
    places = [os.path.join(root, path) for path in files]
    above = [os.path.join(root, path) if path else root for path in folders] + [os.path.dirname(os.path.abspath(root))]
    with ThreadPoolExecutor(min(_SYNCS_AT_ONCE, max(len(places), len(above)))) as pool:
        list(pool.map(sync_file, places))
        list(pool.map(sync_file, above))


def folder_at(place: str | TableFolder) -> TableFolder:
    """Return the folder at a path or an address, whose store finds credentials in the environment."""
    return TableFolder(absolute_location(place)) if isinstance(place, str) else place


@functools.lru_cache(maxsize=64)
def _connected(location: str, storage: tuple[tuple[str, str], ...]) -> Any:
    """Return Arrow's view of a store. A process connects once, however many objects use the folder."""
    import pyarrow.fs as pa_fs
    from deltalake.fs import DeltaStorageHandler

    return pa_fs.PyFileSystem(DeltaStorageHandler(location, dict(storage)))


def _listing_of(filesystem: Any, where: str) -> list[FolderEntry]:
    import pyarrow.fs as pa_fs

    found: list[FolderEntry] = []
    for info in filesystem.get_file_info(pa_fs.FileSelector(where, allow_not_found=True)):
        if info.type == pa_fs.FileType.Directory:
            found.append(FolderEntry(info.base_name, True, 0, 0))
        elif info.type == pa_fs.FileType.File:
            found.append(FolderEntry(info.base_name, False, info.size, (info.mtime_ns or 0) // 1000))
    return found


def _of_store(error: Exception) -> bool:
    from deltalake.exceptions import DeltaError

    # Connection errors are those between Spark and its Python processes, not the store's.
    return isinstance(error, (DeltaError, OSError)) and not isinstance(error, (ConnectionError, TimeoutError))
