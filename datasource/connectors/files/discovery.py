"""Discovery of files in complete passes over the paths: inline while that is quick, else in the background."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Sequence

from ....conf.errors import FeedChangedError
from ....conf.locations import is_remote
from .store import FileAccess, Folders, Seen, new_in

# A pass that takes longer than this goes to the background, at a tenth of one core.
_QUICK_SECONDS = 0.05
# Few files are passed over at once even so: a pass over them is slow only while the machine is busy with something
# else.
_FEW_FILES = 1_000
_BEARABLE_SECONDS = 1.0
_REST = 9
# Between passes, folders whose time of change has moved are looked through for new names.
_LOOK_SECONDS = 0.2
# Files that changed last are looked at each time, so that a growing file in a vast folder is followed without delay.
_HOT = 128

_ON_DISKS = FileAccess()

Changes = tuple[dict[str, Seen], set[str]]


class Discovery:
    """The files under some paths, followed over time. A file under two of them belongs to the first."""

    def __init__(
        self, roots: Sequence[str], *, recursive: bool, name_filter: str | None, access: FileAccess = _ON_DISKS
    ) -> None:
        self._roots = tuple(roots)
        self._recursive = recursive
        self._filter = name_filter
        self._access = access
        self._files: dict[str, Seen] = {}
        self._changed: dict[str, Seen] = {}
        self._gone: set[str] = set()
        self._hot: dict[str, None] = {}
        self._looked: set[str] = set()
        self._folders: Folders = {}
        self._frozen = False
        self._passed = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._state = threading.Lock()
        self._passing = threading.Lock()
        self.seconds = 0.0

    def freeze(self) -> None:
        """Make one complete pass, and keep its result."""
        self._frozen = False
        self._pass()
        self._frozen = True
        self._stop.set()

    def changes(self) -> Changes:
        """Return new and changed files, and files gone, since the last call; the first call returns all as new."""
        self._refresh()
        with self._state:
            found, gone = self._changed, self._gone
            self._changed, self._gone = {}, set()
        return found, gone

    def everything(self) -> dict[str, Seen]:
        """Return all files known now, and forget what :meth:`changes` would return."""
        self._refresh()
        with self._state:
            self._changed, self._gone = {}, set()
            return dict(self._files)

    def _refresh(self) -> None:
        if self._frozen:
            return
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        bearable = _BEARABLE_SECONDS if len(self._files) < _FEW_FILES else _QUICK_SECONDS
        if not self._passed or self.seconds < bearable:
            self._pass()
            return
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=_follow, args=(weakref.ref(self), self._stop), daemon=True)
            self._thread.start()
        self._look_at_hot()

    def _look_at_hot(self) -> None:
        for path in list(self._hot):
            try:
                stat = os.stat(path)
            except FileNotFoundError:
                self._hot.pop(path, None)
                continue
            with self._state:
                known = self._files.get(path)
                if known is None or self._frozen:
                    continue
                seen = (stat.st_size, stat.st_mtime_ns, known[2])
                if seen != known:
                    self._files[path] = self._changed[path] = seen
                    self._looked.add(path)

    def _pass(self) -> None:
        with self._passing:
            began = time.monotonic()
            with self._state:
                self._looked.clear()
            found: dict[str, Seen] = {}
            folders: Folders = {}
            try:
                # The first path above a file names its feed, so the last one is listed first.
                for root in range(len(self._roots) - 1, -1, -1):
                    found.update(
                        self._access.find(
                            self._roots[root], root, folders, recursive=self._recursive, name_filter=self._filter
                        )
                    )
            except OSError as error:
                raise FeedChangedError(
                    f"the files under {', '.join(self._roots)} cannot be listed: {error}",
                    hint="restore access and restart; the query resumes where it stopped",
                ) from error
            with self._state:
                if self._frozen:
                    return
                before = self._files
                changed = {path: seen for path, seen in found.items() if before.get(path) != seen}
                # What was looked at since this pass began is newer than what the pass saw.
                for path in self._looked & found.keys():
                    found[path] = before[path]
                    changed.pop(path, None)
                new = sum(1 for path in changed if path not in before)
                gone = before.keys() - found.keys() if len(found) - new < len(before) else set()
                self._files, self._folders = found, folders
                self._changed.update(changed)
                self._gone = (self._gone | gone) - found.keys() if gone or self._gone else self._gone
                for path in gone:
                    self._changed.pop(path, None)
                for path in [path for path in changed if not is_remote(path)][-_HOT:]:
                    self._hot.pop(path, None)
                    self._hot[path] = None
                while len(self._hot) > _HOT:
                    del self._hot[next(iter(self._hot))]
            self.seconds = time.monotonic() - began
            self._passed = True

    def _look_for_new(self) -> None:
        """Find new files in folders that have changed, without looking at the others' sizes."""
        with self._passing:
            for folder, (changed, root) in list(self._folders.items()):
                try:
                    if os.stat(folder).st_mtime_ns == changed:
                        continue
                    found = dict(new_in(folder, root, self._folders, self._files, name_filter=self._filter))
                except OSError:
                    continue  # the next pass will say so
                with self._state:
                    if self._frozen:
                        return
                    self._files.update(found)
                    self._changed.update(found)
                    self._gone -= found.keys()
                    for path in list(found)[-_HOT:]:
                        self._hot[path] = None


def _follow(reference: weakref.ref[Discovery], stop: threading.Event) -> None:
    # Holds no reference while it rests, so that a forgotten discovery ends its thread.
    rest, due = _LOOK_SECONDS, 0.0
    while not stop.wait(rest):
        discovery = reference()
        if discovery is None:
            return
        began = time.monotonic()
        try:
            if began >= due:
                discovery._pass()  # pyright: ignore[reportPrivateUsage]
                due = time.monotonic() + _REST * discovery.seconds
                rest = _LOOK_SECONDS
            else:
                discovery._look_for_new()  # pyright: ignore[reportPrivateUsage]
                rest = max(_LOOK_SECONDS, _REST * (time.monotonic() - began))
        except BaseException as error:  # noqa: BLE001 - raised where the query can see it
            discovery._error = error  # pyright: ignore[reportPrivateUsage]
            return
        del discovery
