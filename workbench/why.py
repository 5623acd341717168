"""Why a key has its row, or none: one answer from a table, its log, its checkpoint and its input."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import json
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ..conf.errors import TableError, UpstreamError
from ..conf.locations import absolute_location
from ..core.feedback.checkpoint_layout import Kind, dead_letters_folder, operator_folder
from ..core.feedback.reports import REPORTS, QueueReport, WindowReport, read_reports
from ..core.watermark.bounds import is_finite
from ..datasource.connectors.contract import place_text
from ..datasource.connectors.files.store import FileAccess
from ..delta_format.latest_table import recorded_under
from ..delta_format.log import commit_infos
from ..sink.admin.erase import text_key
from ..sink.figures.summary import summary_of
from ..sink.merge.outputs import OUTPUTS_KEY
from ..sink.table.contents import TableContents, recorded_layout
from ..storage.folder import TableFolder
from .jobs import absence_from_query
from .key_answer import EPOCH, KeyAnswer, Stretch, Verdict, cause, instant_text
from .key_feeds import (
    BatchJournal,
    FeedRow,
    FeedSearch,
    KeySources,
    NumberedRange,
    PlannedBatch,
    arrival_of,
    place_shown,
)
from .key_history import Commit, KeyHistory, KeyRow, letters_of
from .watch import checkpoint_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from ..datasource.task import Reading
    from ..sink.figures.summary import CommitSummary
    from ..sink.spec.layout import Layout
    from .bench import Bench

__all__ = ["explain_key", "routes"]

_SECONDS = 0.8
# Of the time for searches; the batch's share is of what is left.
_HISTORY_SHARE, _BATCH_SHARE, _LETTERS_SHARE = 0.35, 0.5, 0.25
_RECENT = 64
_MOST_SHOWN = 20
_PLACE, _COUNT = "The row's place in the input is unknown", "The number of superseded updates is unknown"


def explain_key(
    path: str,
    key: Sequence[Any],
    *,
    parse: Callable[[Layout, str, Sequence[Any]], list[pa.Array]] = text_key,
    storage: Mapping[str, str] | None = None,
    checkpoint: str | None = None,
    seconds: float = _SECONDS,
) -> KeyAnswer:
    """Explain where a key's row comes from, or why there is none.

    Parameters
    ----------
    path : str
        The table.
    key : sequence of str
        ``NAME=VALUE`` for each key column, or ``VALUE`` for a single one.
    parse : callable
        Reads the key.
    storage : mapping of str to str, optional
        Options of the object store.
    checkpoint : str, optional
        The checkpoint of the query that writes the table [default: the folder beside the table with the query's id].
    seconds : float
        The time for searches of files; what they did not reach is among `unknown`.

    Returns
    -------
    KeyAnswer

    Raises
    ------
    OptionError
        The key does not fit the table.
    TableError
        There is no such table, or it cannot be read.
    """
    with TableContents.opened(path, storage) as contents:
        values = parse(contents.layout, contents.target.location, key)
        return _Explanation(contents, values, checkpoint, seconds).answer()


class _Explanation:
    """The search for one answer."""

    def __init__(
        self, contents: TableContents, values: Sequence[pa.Array], checkpoint: str | None, seconds: float
    ) -> None:
        self._contents = contents
        self._values = list(values)
        self._left_s = self._seconds = seconds
        self._history = history = KeyHistory(contents, values)
        with self._spending(_HISTORY_SHARE * seconds) as until_s:
            history.follow(until_s)
        self._recent = commit_infos(contents.table, _RECENT)
        self._checkpoint = self._found(checkpoint)
        self._journal = (
            None if self._checkpoint is None else BatchJournal(self._checkpoint, history.last_of(self._query))
        )
        self._sources = None if self._journal is None else KeySources(self._checkpoint_folder, self._journal)
        layout = contents.layout
        self.found = KeyAnswer(
            table=contents.target.location,
            version=contents.table.version(),
            bucket=history.bucket,
            key={name: value[0].as_py() for name, value in zip(layout.key, values, strict=True)},
            row=history.rows[0].values if history.rows else None,
            rows=len(history.rows),
            tombstone=None if history.tombstone is None else history.tombstone.values,
        )

    def answer(self) -> KeyAnswer:
        found, history = self.found, self._history
        found.events = [_event(each.kind, each.commit, each.row) for each in history.events[:_MOST_SHOWN]]
        if history.stopped:
            self._say(f"Earlier changes are unknown: {history.stopped}.")
        if self._checkpoint is None:
            self._say(
                "The row's input, waiting rows, and unread rows are unknown: the query's checkpoint is not beside the "
                "table. Use `upstream why --checkpoint`."
            )
        found.operators = self._operators()
        if history.rows:
            self._decided(history.rows[0], "written")
        elif self._deletion is not None:
            self._decided(self._deletion, "deleted")
        self._look_ahead()
        found.letters = self._letters()
        if history.rows:
            found.verdict, found.sentence = "present", found.row_sentence
        else:
            found.verdict, found.sentence = self._absence()
        return found

    # The row, or the deletion, that decides

    @property
    def _deletion(self) -> KeyRow | None:
        events = self._history.events
        return events[0].row if events and events[0].kind == "deleted" else self._history.tombstone

    def _decided(self, row: KeyRow, kind: str) -> None:
        found, history = self.found, self._history
        event = next((each for each in history.events[:1] if each.kind == kind), None)
        commit = None if event is None else event.commit
        if commit is None and row.seq is not None and not self._queued:
            commit = history.first_beyond(row.seq)
        if commit is not None:
            found.commit = _commit(commit)
        else:
            self._say(f"The commit is unknown: {history.stopped or 'the log no longer has it'}.")
        time_us = self._event_time(row)
        plan = self._plan_of(row, commit)
        if plan is None:
            self._way([("event", time_us), ("commit", None if commit is None else commit.at_us)])
            return
        own = self._own(row, commit)
        part, at = plan.place_of(own)
        found.decided = place_shown(part, at, self._access)
        found.decided |= {"seq": own, "batch": plan.batch, "source": plan.source}
        arrival_us = arrival_of(part.place, at, found.decided, part.arrival_us)
        mine = self._updates(plan)
        deciding = next((each for each in mine or () if each.seq == own), None)
        if deciding is not None:
            time_us, arrival_us = deciding.time_us if time_us is None else time_us, deciding.arrival_us or arrival_us
        if mine is not None and not self._queued:
            found.superseded = len(mine) - 1
            arrivals = [each.arrival_us for each in mine if each.arrival_us is not None]
            found.first_arrival_us = min(arrivals, default=arrival_us)
        bound = self._journal.bound_before(plan, part.feed) if self._journal else None
        if bound is not None and time_us is not None:
            found.late = is_finite(bound) and time_us < bound
        queue = None if commit is None or commit.summary is None else commit.summary.queue
        self._way(
            [
                ("event", time_us),
                ("arrival", arrival_us),
                ("read", plan.at_us),
                ("served", None if queue is None else queue.clock_us),
                ("commit", None if commit is None else commit.at_us),
            ]
        )

    @property
    def _queued(self) -> bool:
        return any(each["operator"] == "queue" for each in self.found.operators)

    def _own(self, row: KeyRow, commit: Commit | None) -> int:
        query = self._query if commit is None or commit.summary is None else _query_of(commit.summary)
        return (row.seq or 0) - self._history.base_of(query or "")

    def _plan_of(self, row: KeyRow, commit: Commit | None) -> PlannedBatch | None:
        """Return the plan of the batch that read the row; note the reason if it is unknown."""
        journal = self._journal
        if journal is None:
            return None
        if row.seq is None or (commit is not None and commit.summary is None):
            self._say(f"{_PLACE}: no query of UpStream wrote it.")
            return None
        computing = [each["operator"] for each in self.found.operators if each["operator"] != "queue"]
        if computing:
            self._say(f"{_PLACE}: it is a result of {', '.join(computing)}, and the table does not have their input.")
            return None
        if commit is not None and commit.summary is not None and _query_of(commit.summary) != self._query:
            writer = _query_of(commit.summary)
            self._say(f"{_PLACE}: another query wrote it, {writer}. Name its checkpoint: `upstream why --checkpoint`.")
            return None
        plans = journal.batch_of(self._own(row, commit))
        if len(plans) > 1 and commit is not None and commit.summary is not None and commit.summary.queue is None:
            plans = [each for each in plans if each.batch == commit.summary.batch_id]
        if len(plans) > 1:
            self._say(f"{_PLACE}: the query has several sources, and each numbers its own rows.")
        elif not plans:
            first = journal.batches[0] if journal.batches else None
            self._say(
                f"{_PLACE}: the checkpoint has no batch."
                if first is None
                else f"{_PLACE}: an earlier batch read it, and the checkpoint has only batches from {first} on."
            )
        return plans[0] if len(plans) == 1 else None

    def _updates(self, plan: PlannedBatch) -> list[FeedRow] | None:
        """Return the updates of the key that a batch read; None if they cannot be read again."""
        journal, sources = self._journal, self._sources
        assert journal is not None
        assert sources is not None
        if self._queued:
            self._uncounted("the query has a queue, and the table does not have the queue's counts")
        mine: list[FeedRow] = []
        for each in journal.plans(plan.batch):
            reading = sources.of(each.offset)
            if reading is None:
                return self._uncounted(sources.why_not(each.offset))
            rows, search = self._search(reading, each.ranges, each.offset.get("entered"), _BATCH_SHARE)
            if search is None or not search.complete:
                return self._uncounted(self._limited if search is None else search.failed or self._limited)
            mine += [row for row in rows if row.refused is None]
        return mine

    def _uncounted(self, why: str) -> None:
        if not any(each.startswith(_COUNT) for each in self.found.unknown):
            self._say(f"{_COUNT}: {why}.")

    def _way(self, instants: Sequence[tuple[str, int | None]]) -> None:
        known = [(name, at) for name, at in instants if at is not None]
        names = {
            ("event", "arrival"): "event to arrival",
            ("arrival", "read"): "arrival to batch",
            ("read", "served"): "wait in the queue",
            ("read", "commit"): "service",
            ("served", "commit"): "service",
        }
        self.found.way = [
            Stretch(names.get((one, other), f"{one} to {other}"), begin, end)
            for (one, begin), (other, end) in itertools.pairwise(known)
        ]

    def _event_time(self, row: KeyRow) -> int | None:
        """Return a row's event time, if its column has times; only the source has the unit of numbers."""
        layout = self._contents.layout
        name = layout.time or layout.progress_time
        value = None if name is None else row.values.get(name)
        if isinstance(value, dt.datetime):
            at = value if value.tzinfo is not None else value.replace(tzinfo=dt.timezone.utc)
            return round((at - EPOCH) / dt.timedelta(microseconds=1))
        return None

    # What is not in the table

    def _look_ahead(self) -> None:
        """Look for rows of the key that are being processed, that wait, and that are unread."""
        journal, sources = self._journal, self._sources
        if journal is None or sources is None:
            return
        if not journal.last:
            self._say("The input is unknown: the checkpoint has no batch of an UpStream source.")
        for plan in journal.unfinished:
            self._coming(plan.offset, plan.ranges, "in progress", plan)
        self._searched = bool(journal.last)
        for offset in journal.last:
            waiting = sources.waiting(offset)
            self.found.feeds += waiting.feeds
            if waiting.problem:
                self._searched = False
                self._say(f"Unread rows are unknown: {waiting.problem}.")
            else:
                whole = self._coming(offset, waiting.ranges, "unread", None, waiting.looked_us)
                if not (whole and waiting.whole):
                    self._searched = False
                    self._say(f"Some unread rows are unknown: {self._limited}.")
        if self._history.rows or self._deletion is not None:
            return
        for plan in journal.latest():
            if sources.of(plan.offset) is None:
                self._searched = False
                self._say(f"Rows that were read are unknown: {sources.why_not(plan.offset)}.")
                return
            self._searched &= self._coming(plan.offset, plan.ranges, "read", plan)
            if self._left_s <= 0:
                break
        else:
            self._search_everything()
            return
        self._say(f"Some rows that were read are unknown: {self._limited}.")

    def _search_everything(self) -> None:
        """Look through the input from its beginning, if the journal does not begin with the first batch."""
        journal, sources = self._journal, self._sources
        assert journal is not None
        assert sources is not None
        if not journal.batches or journal.batches[0] == 0:
            return
        for offset in journal.last:
            waiting = sources.waiting(offset, all_of_it=True)
            self._searched &= not waiting.problem and waiting.whole
            self._searched &= self._coming(offset, waiting.ranges, "before", None)

    def _coming(
        self,
        offset: Mapping[str, Any],
        ranges: Sequence[NumberedRange],
        state: str,
        plan: PlannedBatch | None,
        looked_us: int | None = None,
    ) -> bool:
        """Note the key's rows in some ranges; return whether all have been searched.

        An arrival of `looked_us` is that of this look: the query has not seen the row.
        """
        found, sources = self.found, self._sources
        assert sources is not None
        reading = sources.of(offset)
        if reading is None:
            return False
        rows, search = self._search(reading, ranges, offset.get("entered"), 1.0)
        for place, reason in [] if search is None else search.unread_lines:
            found.letters.append({"origin": place, "reason": reason, "batch": None, "exact": False, "state": state})
        for row in rows:
            if row.values is not None and state == "read" and (self._newest is None or row.order > self._newest.order):
                self._newest = row
            if row.refused is not None:
                found.refused[row.refused] = found.refused.get(row.refused, 0) + 1
            elif state == "before" and any(each["state"] == "unread" for each in found.coming):
                continue
            elif len(found.coming) < _MOST_SHOWN:
                found.coming.append(
                    {
                        "state": state,
                        "place": place_shown(row.part, row.row, self._access),
                        "batch": None if plan is None else plan.batch,
                        "time_us": row.time_us,
                        "arrival_us": None if row.arrival_us == looked_us else row.arrival_us,
                        "deletes": row.deleted,
                    }
                )
        if search is not None and search.failed:
            self._say(f"Some input cannot be read again: {search.failed}.")
        return search is not None and search.complete

    def _search(
        self, reading: Reading, ranges: Sequence[NumberedRange], entered: Mapping[str, int] | None, share: float
    ) -> tuple[list[FeedRow], FeedSearch | None]:
        with self._spending(share * self._left_s) as until_s:
            try:
                search = FeedSearch(reading, self._contents.layout.key, self._values, until_s)
            except UpstreamError as error:
                self._say(f"The input cannot be searched: {cause(error)}.")
                return [], None
            return list(search.rows(ranges, entered)), search

    def _operators(self) -> list[dict[str, Any]]:
        """Return what waits in the query's operators, by their reports."""
        if self._checkpoint is None:
            return []
        found: list[dict[str, Any]] = []
        for kind, report in REPORTS.items():
            number = 0
            while reports := self._reports(kind, number, report):
                each: dict[str, Any] = {"operator": report.place or kind, "number": number}
                each["rows"] = sum(one.waiting if isinstance(one, QueueReport) else one.kept for one in reports)
                since = [one.oldest_us for one in reports if isinstance(one, QueueReport) and one.waiting]
                since += [one.held_since_us for one in reports if isinstance(one, WindowReport)]
                each["oldest_us"] = min((at for at in since if at is not None), default=None)
                bounds = [bound for one in reports for bound in one.progress.values() if is_finite(bound)]
                each["complete_to"] = min(bounds, default=None)
                found.append(each)
                number += 1
        if "upstream-stages" in {each.name for each in self._checkpoint_folder.listing()}:
            found.append({"operator": "queries", "number": 0, "rows": None, "oldest_us": None, "complete_to": None})
        kinds = [each["operator"] for each in found]
        for each in found:
            number = "" if kinds.count(each["operator"]) == 1 else f" {each['number']}"
            each["name"] = each["operator"] + number
        return found

    def _reports(self, kind: Kind, number: int, report: Any) -> list[Any]:
        place = TableFolder(operator_folder(self._checkpoint_folder.location, kind, number), self._storage)
        with contextlib.suppress(OSError, ValueError):
            return read_reports(place, report)
        return []

    # Dead letters

    def _letters(self) -> list[dict[str, Any]]:
        noted, found = self.found.letters, list[dict[str, Any]]()
        for location in self._letter_places():
            try:
                with self._spending(max(self._left_s, _LETTERS_SHARE * self._seconds)) as until_s:
                    letters, whole = letters_of(self._contents, location, self._values, until_s)
                found += letters
                if not whole:
                    self._say(f"Some dead letters at {location} are unknown: {self._limited}.")
            except (UpstreamError, OSError, pa.ArrowException) as error:
                self._say(f"The dead letters at {location} are unknown: {cause(error)}.")
        stored = {(each["origin"], each["reason"]) for each in found}
        found += [each for each in noted if (each["origin"], each["reason"]) not in stored]
        for each in found:
            self.found.refused.pop(each["reason"], None)
        return found[:_MOST_SHOWN]

    def _letter_places(self) -> list[str]:
        named = [recorded_under(OUTPUTS_KEY, info) for info in self._recent]
        places = [str(each["location"]) for each in named if each]
        if self._sources is not None:
            options = [reading.options.dead_letters for reading in self._sources.readings]
            places += [absolute_location(each) for each in options if each is not None]
            places.append(dead_letters_folder(self._checkpoint_folder.location))
        places.append(self._contents.target.location + "_dead_letters")
        return list(dict.fromkeys(places))

    # The words

    def _absence(self) -> tuple[Verdict, str]:
        found = self.found
        states = {each["state"] for each in found.coming}
        if self._deletion is not None:
            by = "The table has a deletion of the key."
            if found.decided is not None:
                by = f"A deletion from {place_text(found.decided)} removed the key."
            when = "" if found.commit is None else " " + found.committed("the deletion")
            return "deleted", by + when
        if found.events and found.events[0]["kind"] == "removed":
            event = found.events[0]
            when = instant_text(event["at_us"])
            return "deleted", f"{event['operation']} removed the key in version {event['version']}, at {when}."
        if "in progress" in states:
            batch = next(each["batch"] for each in found.coming if each["state"] == "in progress")
            return "in progress", f"Batch {batch} has read a row of the key, and has not committed yet."
        if self._newest is not None and any(each["operator"] == "queries" for each in found.operators):
            return absence_from_query(
                found.table, self._checkpoint_folder.location, None if self._newest.deleted else self._newest.values
            )
        if "read" in states and found.operators:
            return "waiting", f"The query has read a row of the key. It waits in a step: {found.holders}."
        if "unread" in states:
            return "unread", "The query has not read the key's row yet."
        if found.letters:
            return "dead letter", "A row of the key is a dead letter."
        if states:
            return "dropped", (
                "The query has read a row of the key, and the table has neither the row nor its deletion. A step after "
                "the source dropped it, or the table no longer keeps the deletion. Steps do not record what they drop."
            )
        if found.refused:
            return "filtered", "The source dropped each row of the key."
        if self._searched:
            return "unseen", "The input has no row of the key."
        holding = (
            f" It can wait in a step, {found.holders}: only the running query can list the keys there."
            if any(each["rows"] for each in found.operators)
            else ""
        )
        return "unknown", f"The search found no row of the key, and was not complete.{holding}"

    # Where things are

    _searched = False
    _newest: FeedRow | None = None  # of those that finished batches have read

    @property
    def _limited(self) -> str:
        return f"the search ended after {self._seconds:g} s. For a longer one, use `upstream why --seconds`"

    @cached_property
    def _query(self) -> str | None:
        """The query of the checkpoint; without one, the query that wrote the table last."""
        if self._checkpoint is not None:
            with contextlib.suppress(OSError, ValueError, LookupError):
                return str(json.loads(self._checkpoint.read("metadata"))["id"])
        return self._writer

    @cached_property
    def _writer(self) -> str | None:
        """The query that wrote the table last."""
        summaries = map(summary_of, self._recent)
        return next((_query_of(each) for each in summaries if each is not None), None)

    @property
    def _access(self) -> FileAccess:
        return FileAccess(self._storage)

    @property
    def _storage(self) -> Mapping[str, str]:
        return self._contents.target.storage

    @property
    def _checkpoint_folder(self) -> TableFolder:
        assert self._checkpoint is not None
        return self._checkpoint

    def _found(self, checkpoint: str | None) -> TableFolder | None:
        if checkpoint is None and self._writer is not None:
            checkpoint = checkpoint_of(self._contents.target.folder, self._writer)
        if checkpoint is None:
            return None
        folder = TableFolder(absolute_location(checkpoint), self._storage)
        if not folder.has("metadata"):
            raise TableError(
                f"there is no checkpoint at {folder.location}",
                expected="the folder that the query has as its checkpointLocation",
                hint="check the path",
            )
        return folder

    @contextlib.contextmanager
    def _spending(self, seconds: float) -> Generator[float]:
        """Yield the moment until which a search may last, and count the time that it takes."""
        began = time.monotonic()
        yield began + seconds
        self._left_s -= time.monotonic() - began

    def _say(self, sentence: str) -> None:
        if sentence not in self.found.unknown:
            self.found.unknown.append(sentence)


def _query_of(summary: CommitSummary) -> str:
    """Return the id of the query that made a commit; ``foreachBatch`` numbers its writes to one table after a slash."""
    return summary.query_id.partition("/")[0]


def _commit(commit: Commit) -> dict[str, Any]:
    summary = commit.summary
    return {
        "version": commit.version,
        "at_us": commit.at_us,
        "operation": commit.operation,
        "batch_id": None if summary is None else summary.batch_id,
        "query_id": None if summary is None else summary.query_id,
    }


def _event(kind: str, commit: Commit, row: KeyRow | None) -> dict[str, Any]:
    return {"kind": kind, **_commit(commit), "row": None if row is None else row.values}


def routes(bench: Bench) -> list[Route]:
    """Return the route of the page."""
    return [bench.endpoint("/api/v1/why", partial(_answered, bench), apart=True)]


def _answered(bench: Bench, request: Request) -> dict[str, Any]:
    """Answer for a key; without one, return the columns of the table's key, and of its event time."""
    table = bench.watch.shown(request.query_params.get("table"))
    given = request.query_params.getlist("key")
    if not given:
        _, _, layout = recorded_layout(table.location, table.storage)
        kinds = zip(layout.key, layout.key_types, strict=True)
        return {"key": [{"name": name, "type": str(kind)} for name, kind in kinds], "event_time": layout.time}
    answer = explain_key(table.location, given, storage=table.storage, checkpoint=table.checkpoint, seconds=_SECONDS)
    return answer.to_json()
