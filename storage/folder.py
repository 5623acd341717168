"""A folder, a table's or a checkpoint's: files by their path in it, on a disk or in an object store."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import re
import uuid
from collections.abc import Callable, Generator, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from ..conf.errors import TableError, UpstreamError
from ..conf.locations import absolute_location, is_remote
from .durable import sync_file, sync_paths
from .object_store import put_if_absent, puts_refused

__all__ = ["Listed", "TableFolder", "folder_at"]

T = TypeVar("T")
U = TypeVar("U")

_MASK = "***"
# An object store answers each request after some milliseconds, however many are under way.
_AT_ONCE = 16
_PUTS = 3
# Of the storage options those whose values are no secret; all others are taken for one, whatever a store may call them.
# An address may have a password in it.
_PLAIN = re.compile(
    r"region|endpoint|timeout|retries|interval|allow_|virtual_hosted|conditional_put|copy_if|unsigned|skip_|disable_"
)
# How delta-rs sets off the causes of an error, for terminals.
_CAUSE = re.compile(r"\s*\x1b\[[0-9;]*m↳\x1b\[0m\s*")


class Listed(NamedTuple):
    """What a folder holds under one name.

    Attributes
    ----------
    name : str
        Without the folder's.
    is_folder : bool
    size : int
        In bytes; 0 for a folder.
    modified_us : int
        Microseconds since the epoch; 0 for a folder.
    """

    name: str
    is_folder: bool
    size: int
    modified_us: int


@dataclasses.dataclass
class TableFolder:
    """Where a table or a checkpoint lies, and how its files are reached.

    Attributes
    ----------
    location : str
        The absolute path, or the address if it is not on a local disk.
    storage : mapping
        Options for the object store. Never shown.
    durable : bool
        Whether files are to outlive a power cut: :meth:`sync` and :meth:`put_new` then wait for a disk. A store keeps
        what it has confirmed.
    """

    location: str
    storage: Mapping[str, str] = dataclasses.field(default_factory=dict, repr=False)
    durable: bool = False

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a disk of this machine (or one mounted there)."""
        return not is_remote(self.location)

    def below(self, path: str) -> TableFolder:
        """Return a folder in this one."""
        return TableFolder(f"{self.location}/{path}", self.storage, self.durable)

    def place(self, path: str) -> tuple[str, Any]:
        """Return a file's place for Arrow: its path, and the file system unless that is the local one."""
        if self.is_local:
            return os.path.join(self.location, path), None
        return path, _connected(self.location, tuple(sorted(self.storage.items())))

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        """
        where, filesystem = self.place(path)
        if filesystem is None:
            with open(where, "rb") as file:
                return file.read()
        with filesystem.open_input_stream(where, compression=None) as stream:
            return bytes(stream.read())

    def read_range(self, path: str, start: int, count: int) -> bytes:
        """Return `count` bytes of a file from `start` on; fewer if the file ends before.

        Raises
        ------
        FileNotFoundError
            There is no such file.
        """
        where, filesystem = self.place(path)
        if filesystem is None:
            with open(where, "rb") as file:
                file.seek(start)
                return file.read(count)
        with filesystem.open_input_file(where) as stream:
            stream.seek(start)
            return bytes(stream.read(count))

    def write(self, path: str, content: bytes) -> None:
        """Write a file whole.

        If the process dies meanwhile, a disk may have a part of the file; an object store has nothing of it.
        """
        with self.opened_to_write(path, len(content) + 1) as stream:
            stream.write(content)

    def opened_to_write(self, path: str, buffer_size: int | None = None) -> Any:
        """Open a new file as an Arrow stream, which the caller closes.

        A caller that writes Python's bytes to an object store gives a `buffer_size`.
        """
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
        """Write a file whole into a folder that is there, if there is none of its name.

        If the process dies meanwhile, no part of the file stays.

        Parameters
        ----------
        path, content
            The file's path and content. The content has an id in it that no other content has.

        Returns
        -------
        bool
            False if there is one with another content.

        Raises
        ------
        OSError
            The file cannot be written, or the store has not confirmed whether it is there.
        EnvironmentMissingError, TableError
            As of :meth:`puts_refused`.
        """
        refusal = self.puts_refused()
        if refusal is not None:
            raise refusal
        failed = OSError(f"the store refuses {path} as if it were there, and it is not")
        for _ in range(_PUTS):
            try:
                if self._put_if_absent(path, content):
                    return True
            except OSError as error:
                if self.is_local:
                    raise
                failed = error
            # Whoever answers no, or not at all, may have put it nevertheless: an answer is lost, and the request
            # repeated by the store's client.
            with contextlib.suppress(FileNotFoundError):
                return self.read(path) == content
            # And where it is not: S3 says no to two at once of which neither is there afterwards, and a request may
            # still be on its way. The next one settles it.
        raise failed

    def puts_refused(self) -> UpstreamError | None:
        """Return why :meth:`put_new` is impossible where the table is; None if it is possible.

        Reasons are a missing package, a store without conditional puts, or options that do not reach the store. A
        process tries a store once, and a store that refused again after a minute.
        """
        return None if self.is_local else puts_refused(self.location, self.storage, self.masked)

    def _put_if_absent(self, path: str, content: bytes) -> bool:
        where, _ = self.place(path)
        if not self.is_local:
            try:
                return put_if_absent(self.location, self.storage, path, content)
            except OSError as error:
                raise OSError(self.masked(error)) from None
        # A name that no reader of a log takes for an entry. A link is made whole or not at all, and never over another
        # file.
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
        """Wait until files are on the disk with the entries of their folders, if the folder is `durable` and local."""
        if self.durable and self.is_local:
            sync_paths(self.location, paths)

    def has(self, path: str) -> bool:
        """Return whether there is such a file."""
        where, filesystem = self.place(path)
        if filesystem is None:
            return os.path.exists(where)
        import pyarrow.fs as pa_fs

        return filesystem.get_file_info(where).type == pa_fs.FileType.File

    def size(self, path: str) -> int:
        """Return the length of a file in bytes; 0 if there is no such file."""
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
        with contextlib.suppress(FileNotFoundError), os.scandir(os.path.join(self.location, folder)) as entries:
            return [entry.name for entry in entries if not entry.is_dir()]  # without a look at each file
        return []

    def listing(self, path: str = "") -> list[Listed]:
        """Return the direct content of a folder below the table, in no order; nothing if there is no such folder."""
        where, filesystem = self.place(path)
        if filesystem is not None:
            return _listing_of(filesystem, where.rstrip("/"))
        found: list[Listed] = []
        with contextlib.suppress(FileNotFoundError), os.scandir(where) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another process has just removed it
                    status = entry.stat()
                    listed = (True, 0, 0) if entry.is_dir() else (False, status.st_size, status.st_mtime_ns // 1000)
                    found.append(Listed(entry.name, *listed))
        return found

    def remove(self, paths: Iterable[str]) -> None:
        """Delete files that nobody needs.

        A file that cannot be removed is left to the next attempt, or to VACUUM.
        """
        self.each(self._remove, paths)

    def each(self, work: Callable[[U], T], things: Iterable[U]) -> list[T]:
        """Return the results of `work`, which reads or writes a file, in the order of `things`.

        In an object store, several files are in work at once.
        """
        chosen = list(things)
        if self.is_local or len(chosen) < 2:
            return [work(each) for each in chosen]
        from concurrent.futures import ThreadPoolExecutor

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
        shown = _CAUSE.sub(": ", str(message)).strip()
        for secret in self._secrets():
            shown = shown.replace(secret, _MASK)
        return shown

    def masked_error(self, error: UpstreamError) -> UpstreamError:
        """Return an error without the secrets among the storage options, also in what caused it."""
        if not self._tells(error):
            return error
        parts = (self.masked(part) for part in (error.expected, error.hint))
        return type(error)(self.masked(error.problem), **dict(zip(("expected", "hint"), parts, strict=True)))

    @contextlib.contextmanager
    def guarded(self) -> Generator[None, None, None]:
        """Mask secrets in errors that leave this block, and add advice if an object store refuses.

        A disk's errors stay as they are.

        Raises
        ------
        TableError
            The store failed.
        """
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
                f"the object store does not do what is asked of it at {self.location}: {self.masked(error)}",
                expected="a bucket that is there, and may be listed, read and written with the storage options",
                hint="correct the address, or the options that begin with `storage.` (docs/readers.md); a restarted "
                "query repeats the batch",
            ) from None

    def _secrets(self) -> list[str]:
        """Return the secret option values, longest first: one may be part of another."""
        values = [value for name, value in self.storage.items() if not _PLAIN.search(name.lower()) or "@" in value]
        written = {form for value in values if len(value) > 3 for form in (value, quote(value, safe=""))}
        return sorted(written, key=len, reverse=True)

    def _tells(self, error: BaseException) -> bool:
        secrets, each = self._secrets(), error
        while each is not None:
            if any(secret in str(each) for secret in secrets):
                return True
            each = each.__cause__ or each.__context__
        return False


def folder_at(place: str | TableFolder) -> TableFolder:
    """Return the folder at a path or an address; a folder stays as it is.

    For an address, the store's client finds credentials in the environment.
    """
    return TableFolder(absolute_location(place)) if isinstance(place, str) else place


@functools.lru_cache(maxsize=64)
def _connected(location: str, storage: tuple[tuple[str, str], ...]) -> Any:
    """Return Arrow's view of a store. A process connects once, however many objects use the folder."""
    import pyarrow.fs as pa_fs
    from deltalake.fs import DeltaStorageHandler

    return pa_fs.PyFileSystem(DeltaStorageHandler(location, dict(storage)))


def _listing_of(filesystem: Any, where: str) -> list[Listed]:
    import pyarrow.fs as pa_fs

    found: list[Listed] = []
    for info in filesystem.get_file_info(pa_fs.FileSelector(where, allow_not_found=True)):
        if info.type == pa_fs.FileType.Directory:
            found.append(Listed(info.base_name, True, 0, 0))
        elif info.type == pa_fs.FileType.File:
            found.append(Listed(info.base_name, False, info.size, (info.mtime_ns or 0) // 1000))
    return found


def _of_store(error: Exception) -> bool:
    from deltalake.exceptions import DeltaError

    # What breaks between Spark and its Python processes is no word of the store.
    return isinstance(error, (DeltaError, OSError)) and not isinstance(error, (ConnectionError, TimeoutError))
