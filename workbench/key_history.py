"""One key in a table's files and log: its row, its earlier rows, its deletion, and the commits that made them."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ..conf.errors import TableError
from ..core.rows.buckets import bucket_of
from ..core.rows.columns import columns_at
from ..core.rows.event_times import with_python_times
from ..core.rows.sort_keys import places
from ..delta_format.append_table import DEAD_LETTERS, dead_letter_table
from ..delta_format.deletion_vectors import DeletionVector
from ..delta_format.latest_table import BUCKET, ORDERS, SEQ, CommitChanges
from ..delta_format.log import LiveFiles, entry_actions
from ..sink.admin.erase import KeyRows, LettersWithKey
from ..sink.commit.batch_identity import BASE_PREFIX, HIGHEST
from ..sink.figures.summary import APP_PREFIX, CommitSummary, summary_of
from ..sink.table.files import DataFiles
from ..sink.table.table import transaction_version
from ..sink.table.tombstones import DELETIONS

if TYPE_CHECKING:
    from ..core.rows.exact_integers import Int64s
    from ..sink.table.contents import TableContents

# Of a table that keeps all rows, a key may have millions.
_MOST_ROWS = 1_000
_MOST_VERSIONS = 500


class KeyRow(NamedTuple):
    """A row or a deletion of the key."""

    values: Mapping[str, Any]  # a deletion has the deciding columns alone
    seq: int | None  # the order of arrival in the table


class Commit(NamedTuple):
    """A commit."""

    version: int
    at_us: int | None
    operation: str
    summary: CommitSummary | None  # None for a commit that no query made


class KeyEvent(NamedTuple):
    """A change of the key's row by a commit."""

    kind: str  # `written`, `deleted` or `removed`: by a commit that is no query's
    commit: Commit
    row: KeyRow | None  # what was written, or the deletion; None if it cannot be read


class _RowPlace(NamedTuple):
    path: str
    position: int


@dataclasses.dataclass
class _Entry:
    """What one version did in the key's bucket."""

    commit: Commit
    changes: CommitChanges | None
    added: dict[str, dict[str, Any]]
    removed: dict[str, dict[str, Any]]
    numbers: dict[str, int]

    def fresh_from(self, path: str, files: DataFiles) -> int:
        """Return the position of the first row of an added file that this commit decided."""
        stats = json.loads(self.added[path].get("stats") or "{}")
        count = stats.get("numRecords")
        count = files.count(path) if count is None else int(count)
        fresh = {} if self.changes is None else {unquote(name): rows for name, rows in self.changes.rows.items()}
        return count - fresh.get(path, 0)


class KeyHistory:
    """The search for one key in one version of a table, and back through its log.

    Attributes
    ----------
    rows : sequence of KeyRow
        The key's live rows, the newest first: more than one only if the table keeps a history.
    tombstone : KeyRow or None
        The deletion that the table remembers.
    events : list of KeyEvent
        Changes of the key, the latest first, as far back as :meth:`follow` went.
    stopped : str
        Why it went no further; empty if it found the key's first row.
    """

    def __init__(self, contents: TableContents, values: Sequence[pa.Array]) -> None:
        self.contents = contents
        self.key = KeyRows(contents.layout.key, values)
        self.bucket = int(bucket_of(list(values), contents.layout.buckets)[0])
        self.events: list[KeyEvent] = []
        self.stopped = ""
        self._seen: dict[int, _Entry] = {}
        self._gone: str | None = None
        found: list[tuple[KeyRow, _RowPlace]] = []
        held = contents.snapshot.of_bucket(self.bucket)
        for path, vector in zip(held.rows, held.vectors, strict=True):
            places_in = self._live(path, vector)
            if places_in is None:
                raise TableError(
                    f"a file of the table at {contents.target.location} is gone: {path}",
                    expected="a table that `upstream check` finds right",
                    hint="try again if its query maintains it just now; else run `upstream repair`",
                )
            found += self._rows(path, places_in)
        order = _newest_first(found, contents.layout.order)
        self.rows = [found[at][0] for at in order]
        self._newest = found[order[0]][1] if order else None
        self.tombstone = self._tombstone()

    def base_of(self, query_id: str) -> int:
        """Return what the table adds to the numbers of a query's rows."""
        return transaction_version(self.contents.target, self.contents.table, BASE_PREFIX + query_id) or 0

    def last_of(self, query_id: str | None) -> int:
        """Return the last batch of a query in the table; -1 if there is none."""
        found = transaction_version(self.contents.target, self.contents.table, f"{APP_PREFIX}{query_id}")
        return -1 if found is None else found

    def follow(self, until_s: float) -> None:
        """Go back through the log until a moment of the monotonic clock, to find who made the key what it is."""
        place = self._newest
        first = self.contents.table.version()
        for version in range(first, max(first - _MOST_VERSIONS, -1), -1):
            if time.monotonic() > until_s:
                self.stopped = f"the search reached version {version + 1} in its time. Use `upstream why --seconds`"
                return
            entry = self._entry(version)
            if entry is None:
                self.stopped = f"the log begins with version {version + 1}"
                return
            place = self._step(entry, place)
            if self._gone is not None:
                self.stopped = f"a file of version {version - 1} is gone: {self._gone}"
                return
        if first >= _MOST_VERSIONS:
            self.stopped = f"the search ended after {_MOST_VERSIONS} versions"

    def _step(self, entry: _Entry, place: _RowPlace | None) -> _RowPlace | None:
        """Return the key's place before a version, from that after it, and note what the version did to the key."""
        files = self.contents.files
        if place is not None:
            if place.path not in entry.added:
                return place
            if place.position >= entry.fresh_from(place.path, files):
                rows = self._rows(place.path, np.array([place.position]))
                self.events.append(KeyEvent("written", entry.commit, rows[0][0]))
                return self._before(entry)
            if place.path in entry.removed:  # only marked
                return place
            before = self._before(entry)
            if before is None and self._gone is None:
                self._gone = "the file that held the row before"
            return before
        deletion = self._deletion(entry)
        foreign = entry.commit.summary is None and entry.commit.operation not in ("OPTIMIZE", "COMPACT")
        if deletion is None and not (foreign and entry.removed):
            return None
        before = self._before(entry)
        if deletion is not None:
            self.events.append(KeyEvent("deleted", entry.commit, deletion))
        elif before is not None:
            self.events.append(KeyEvent("removed", entry.commit, None))
        return before

    def _before(self, entry: _Entry) -> _RowPlace | None:
        """Return the key's place among the files that a version replaced; the newest row of several."""
        found: list[tuple[KeyRow, _RowPlace]] = []
        for path, removed in entry.removed.items():
            vector = removed.get("deletionVector")
            places_in = self._live(path, None if vector is None else DeletionVector.from_json(vector))
            if places_in is None:
                self._gone = path
                return None
            found += self._rows(path, places_in)
        order = _newest_first(found, self.contents.layout.order)
        return found[order[0]][1] if order else None

    def _live(self, path: str, vector: DeletionVector | None) -> Int64s | None:
        """Return the positions of the key's live rows in a file; None if the file, or its vector, is gone."""
        files = self.contents.files
        try:
            at = self.key.positions_in(files, path)
            if len(at) and vector is not None:
                at = at[~files.dead(vector, files.count(path))[at]]
        except FileNotFoundError:
            return None
        return at[-_MOST_ROWS:]

    def _rows(self, path: str, positions: Int64s) -> list[tuple[KeyRow, _RowPlace]]:
        if not len(positions):
            return []
        rows = with_python_times(self.contents.files.rows_at(path, positions)).to_pylist()
        return [(_row(row), _RowPlace(path, int(at))) for row, at in zip(rows, positions, strict=True)]

    def _tombstone(self) -> KeyRow | None:
        with self.contents.needed():
            buried = self.contents.buried(self.bucket)
        mine = with_python_times(buried.filter(pa.array(self.key.among(buried)))).to_pylist()
        return _row(mine[-1]) if mine else None

    def _deletion(self, entry: _Entry) -> KeyRow | None:
        if entry.changes is None:
            return None
        files = self.contents.tombstones.in_folder(DELETIONS)
        for path in map(unquote, entry.changes.deletions):
            if f"{BUCKET}={self.bucket}/" not in path:
                continue
            try:
                at = self.key.positions_in(files, path)
                if len(at):
                    return _row(with_python_times(files.rows_at(path, at[-1:])).to_pylist()[0])
            except FileNotFoundError:
                continue
        return None

    def _entry(self, version: int) -> _Entry | None:
        """Return what a version did in the bucket; None if the log no longer has it."""
        if version in self._seen:
            return self._seen[version]
        try:
            actions = entry_actions(self.contents.target.folder, version)
        except (FileNotFoundError, ValueError):
            return None
        info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        summary, stamp = summary_of(info), info.get("timestamp")
        at_us = summary.committed_at_us if summary is not None else None if stamp is None else int(stamp) * 1000
        found = self._seen[version] = _Entry(
            Commit(version, at_us, str(info.get("operation", "")), summary),
            CommitChanges.of_commit(info),
            dict(self._of_bucket(actions, "add")),
            dict(self._of_bucket(actions, "remove")),
            {each["txn"]["appId"]: int(each["txn"]["version"]) for each in actions if "txn" in each},
        )
        return found

    def _of_bucket(self, actions: Sequence[Mapping[str, Any]], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
        for each in actions:
            file = each.get(kind)
            if file is not None:
                path = unquote(file["path"])
                named = (file.get("partitionValues") or {}).get(BUCKET)
                if str(self.bucket) == named if named is not None else f"{BUCKET}={self.bucket}/" in path:
                    yield path, file

    def first_beyond(self, seq: int) -> Commit | None:
        """Return the first commit after which the table has had a row of this number or a later one.

        Without a queue, it is the commit that brought the row of that number. It is None if the log no longer has it,
        or if several queries number the table's rows.
        """
        low, high = -1, self.contents.table.version()
        bases: set[str] = set()
        while high - low > 1:
            middle = (low + high) // 2
            entry = self._numbered(middle, low)
            if entry is None:
                low = middle
                continue
            bases |= {name for name in entry.numbers if name.startswith(BASE_PREFIX)}
            if entry.numbers[HIGHEST] > seq:
                high = entry.commit.version
            else:
                low = middle
        entry = self._entry(high)
        if entry is None or HIGHEST not in entry.numbers or entry.numbers[HIGHEST] <= seq:
            return None
        before = self._entry(high - 1) if high else None
        bases |= {name for name in entry.numbers if name.startswith(BASE_PREFIX)}
        return entry.commit if len(bases) == 1 and (before is not None or high == 0) else None

    def _numbered(self, version: int, above: int) -> _Entry | None:
        """Return the last entry up to a version, and above another, that records the table's highest number."""
        while version > above:
            entry = self._entry(version)
            if entry is None:
                return None
            if HIGHEST in entry.numbers:
                return entry
            version -= 1
        return None


def letters_of(
    contents: TableContents, location: str, values: Sequence[pa.Array], until_s: float
) -> tuple[list[dict[str, Any]], bool]:
    """Return the key's dead letters, latest files first, ``exact`` if rows of the key, and if all were searched."""
    target = dataclasses.replace(contents.target, location=location)
    if "_delta_log" not in {each.name for each in target.folder.listing()}:
        return [], True
    table = dead_letter_table(target.folder).load()
    files, wanted = DataFiles(target, DEAD_LETTERS), LettersWithKey(contents.layout.key, values)
    found: list[dict[str, Any]] = []
    for path in reversed([] if table is None else LiveFiles.of(table).paths):
        if time.monotonic() > until_s:
            return found, False
        rows = files.read_rows([path])
        for text in wanted.texts:
            rows = rows.filter(pc.fill_null(pc.match_substring_regex(rows.column("payload"), text), False))
        sure = wanted.among(rows).tolist()
        found += [{"exact": exact, **letter} for letter, exact in zip(rows.to_pylist(), sure, strict=True)]
    return found, True


def _row(values: Mapping[str, Any]) -> KeyRow:
    shown = {name: value for name, value in values.items() if name not in (SEQ, ORDERS)}
    return KeyRow(shown, values.get(SEQ))


def _newest_first(found: Sequence[tuple[KeyRow, _RowPlace]], order: Sequence[str]) -> list[int]:
    """Return the indexes of rows of one key, in the table's order of time and arrival."""
    if len(found) < 2:
        return list(range(len(found)))
    arrival = np.array([-1 if row.seq is None else row.seq for row, _ in found])
    if not order:
        return np.argsort(-arrival, kind="stable").tolist()
    rows = pa.Table.from_pylist([dict(row.values) for row, _ in found])
    time_of = places(columns_at(rows, list(order)))
    return np.lexsort((-arrival, -time_of)).tolist()
