"""Compact offsets, and what Spark has journaled of a batch: its sources' offsets and row counts."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ...conf.errors import CheckpointError
from ...storage.atomic_write import append_to, read_appended
from ...storage.folder import TableFolder
from ..watermark.bounds import AFTER_ALL
from .checkpoint_layout import FEED_LISTS, times_folder
from .reports import reported_states

Offset = dict[str, Any]
State = Mapping[str, Any]

_WHOLE, _PARTED = 1, 2
# The most inactive feeds that the offset itself holds.
_OTHERS = 32
# The most feeds that the offset itself holds, inactive or not.
_MOST = 1000
# The list is rewritten once it has so many times more lines than there are feeds.
_STALE, _SLACK = 4, 1000


class _List:
    """The feeds of a list: for each its state, when it was last heard of, and whether it has ended."""

    def __init__(self, reference: Mapping[str, Any]) -> None:
        self.reference = dict(reference)
        self.feeds: dict[str, tuple[State, int, bool]] = {}
        self.lines = 0

    def take(self, data: bytes) -> None:
        for line in data.splitlines():
            feed, state, heard, ended = json.loads(line)
            self.feeds[feed] = state, heard, ended
            self.lines += 1


class OffsetBook:
    """A converter of offsets between the form that Spark journals and the whole form that the planner uses.

    With a feed per file, nearly all feeds are inactive, and a whole offset would grow with each file. The rule for
    silent feeds raises all their bounds to the same value, so one number in the offset covers the whole list. Offsets
    stay whole without a checkpoint, or in an object store, where nothing can be appended.
    """

    def __init__(self, checkpoint: TableFolder | None) -> None:
        local = checkpoint is not None and checkpoint.is_local
        self._folder = os.path.join(checkpoint.location, FEED_LISTS) if checkpoint is not None and local else None
        self._list: _List | None = None
        self._replaced: str | None = None

    def whole(self, offset: Offset) -> Offset:
        """Return the whole form of a journaled offset: exactly the one that :meth:`kept` was given."""
        if offset.get("version") != _PARTED or "kept" not in offset:  # another source numbers its offsets, too
            return offset
        reference = offset["kept"]["list"]
        if self._folder is None:
            raise CheckpointError(
                f"the checkpoint keeps its list of feeds in {reference['list']}, and no checkpointLocation is given",
                hint="set the option checkpointLocation to its first value",
            )
        if self._list is None or self._list.reference != reference:
            self._list = _List(reference)
            self._list.take(read_appended(self._folder, reference))
        return _joined(offset, self._list)

    def kept(self, before: Offset, offset: Offset) -> Offset:
        """Return the journal's form of the whole `offset`, whose list is then on disk; `before` is the last journaled
        form.
        """
        if self._folder is None or "progress" not in offset:
            return offset
        last = self.whole(before)
        known = before["kept"]["list"] if before.get("version") == _PARTED else None
        listed = self._list if known is not None and self._list is not None else _List({})
        found = _parted(offset, listed, before.get("kept", {}).get("raised"))
        many = len(found["progress"]) > _MOST
        resting = [feed for feed in found["progress"] if many or _rests(feed, last, offset)]
        if len(resting) > _OTHERS or not listed.feeds.keys() <= offset["progress"].keys():
            listed = self._append(self._folder, offset, listed, resting)
            found = _parted(offset, listed, before.get("kept", {}).get("raised"))
        return found if listed.lines else offset

    def forget(self, end: Offset) -> None:
        """Remove the list that the list of the committed offset `end` has replaced."""
        if self._folder is None or self._replaced is None or self._list is None:
            return
        if end.get("kept", {}).get("list", {}).get("list") == self._list.reference.get("list"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self._folder, self._replaced))
            self._replaced = None

    def _append(self, folder: str, offset: Offset, listed: _List, resting: Iterable[str]) -> _List:
        feeds = list(resting)
        known = listed.feeds.keys() & offset["progress"].keys()
        anew = len(known) < len(listed.feeds) or listed.lines + len(feeds) > _STALE * len(offset["progress"]) + _SLACK
        if anew:
            feeds = sorted(known | set(feeds))
            self._replaced = listed.reference.get("list")
            listed = _List({})
        ended = set(offset["ended"])
        data = "".join(
            json.dumps([feed, offset["progress"][feed], offset["heard"][feed], feed in ended], separators=(",", ":"))
            + "\n"
            for feed in feeds
        ).encode()
        longer = _List(append_to(folder, listed.reference, data))
        longer.feeds, longer.lines = dict(listed.feeds), listed.lines
        longer.take(data)
        self._list = longer
        return longer


_MEMBERS: Mapping[str, type] = {"id": str, "connector": str, "seq": int, "first_seq": int, "position": dict}
_COUNTS = ("own", "received", "late", "suspects")


def whole_offset(offset: Offset, checkpoint: TableFolder | None) -> Offset:
    """Return the whole form of a journaled offset; raise a CheckpointError if this version has not written it."""
    return checked_offset(OffsetBook(checkpoint).whole(offset))


def checked_offset(offset: Offset) -> Offset:
    """Return the offset of a source; raise a CheckpointError if this version has not written it."""
    try:
        states = offset["progress"].values()
        numbers = [state["bound"] for state in states if state["bound"] is not None]
        numbers += offset.get("heard", {}).values()
        numbers += [state[name] for state in states for name in _COUNTS if state.get(name) is not None]
        fits = all(isinstance(each, int) for each in numbers)
        fits = fits and all(isinstance(each, str) for each in offset.get("ended", ()))
        needed = _MEMBERS.items() if "position" in offset else ()  # without one, the source has read nothing yet
        fits = fits and all(isinstance(offset[name], kind) for name, kind in needed)
    except (AttributeError, LookupError, TypeError):
        fits = False
    if not fits:
        raise CheckpointError(
            f"the offset of a source cannot be read: {json.dumps(offset)[:200]}",
            expected="the files below offsets of the checkpoint as this version's query wrote them",
            hint="restart the query with this version, or restore that folder",
        )
    return offset


def _raised(state: State, to: Mapping[str, Any] | None) -> State:
    """Return a listed state with the bounds to which all silent feeds are raised."""
    changed = {name: bound for name, bound in (to or {}).items() if state.get(name) is not None and state[name] < bound}
    return {**state, **changed} if changed else state


def _rests(feed: str, before: Offset, after: Offset) -> bool:
    """Return whether a feed has not changed, except that its bounds were raised."""
    state = before.get("progress", {}).get(feed)
    if state is None or before["heard"].get(feed) != after["heard"].get(feed):
        return False
    now = after["progress"][feed]
    return {**state, "bound": None, "own": None} == {**now, "bound": None, "own": None}


def _parted(offset: Offset, listed: _List, before: Mapping[str, Any] | None) -> Offset:
    """Return the offset without the part that the list and the two numbers `bound` and `own` reproduce exactly."""
    if not listed.lines:
        return offset
    states = offset["progress"]
    to: dict[str, int] = {}
    for name in ("bound", "own"):
        changed = Counter(
            state[name]
            for feed, (known, _, _) in listed.feeds.items()
            if (state := states.get(feed)) is not None and known.get(name) != state[name] and state[name] is not None
        )
        if changed:
            to[name] = changed.most_common(1)[0][0]
    ended = set(offset["ended"])
    apart = {
        feed
        for feed in states
        if feed not in listed.feeds
        or (_raised(listed.feeds[feed][0], to), *listed.feeds[feed][1:])
        != (states[feed], offset["heard"][feed], feed in ended)
    }
    listed_punctuation = _listed_punctuation(listed, apart, before, to)
    said: Mapping[str, int] = offset["punctuation"]
    derived = listed_punctuation.keys() <= said.keys()
    if not derived:
        listed_punctuation = {}  # the journaled punctuation differs from what the list implies
    return {
        **offset,
        "version": _PARTED,
        "progress": {feed: state for feed, state in states.items() if feed in apart},
        "heard": {feed: at for feed, at in offset["heard"].items() if feed in apart},
        "ended": [feed for feed in offset["ended"] if feed in apart or feed not in listed.feeds],
        "punctuation": {feed: bound for feed, bound in said.items() if listed_punctuation.get(feed) != bound},
        "kept": {"list": listed.reference, "raised": to, **({"before": before or {}} if derived else {})},
    }


def _listed_punctuation(
    listed: _List, apart: Iterable[str], before: Mapping[str, Any] | None, to: Mapping[str, Any]
) -> dict[str, int]:
    """Return the punctuation of listed feeds, except `apart`, whose bounds were raised from one number to another."""
    listed_punctuation: dict[str, int] = {}
    left = set(apart)
    for feed, (state, _, _) in listed.feeds.items():
        bound = _raised(state, to).get("bound")
        if feed not in left and bound is not None and bound != _raised(state, before).get("bound"):
            listed_punctuation[feed] = bound
    return listed_punctuation


def _joined(offset: Offset, listed: _List) -> Offset:
    """Return the whole offset: the inverse of :func:`_parted`."""
    kept = offset["kept"]
    apart = offset["progress"].keys()
    rest = {feed: each for feed, each in listed.feeds.items() if feed not in apart}
    listed_punctuation = _listed_punctuation(listed, apart, kept["before"], kept["raised"]) if "before" in kept else {}
    found = {
        **offset,
        "version": _WHOLE,
        "progress": {feed: _raised(state, kept["raised"]) for feed, (state, _, _) in rest.items()} | offset["progress"],
        "heard": {feed: heard for feed, (_, heard, _) in rest.items()} | offset["heard"],
        "ended": sorted({feed for feed, (_, _, ended) in rest.items() if ended} | set(offset["ended"])),
        "punctuation": listed_punctuation | offset["punctuation"],
    }
    del found["kept"]
    return found


_HEAD = 2
"""Lines before the offsets: the layout's version, and Spark's own settings."""


def journaled_offsets(checkpoint: TableFolder, batch: int) -> list[object]:
    """Return each source's end offset, parsed if it is JSON. Raise FileNotFoundError if the batch is not there."""
    # Not remembered: a checkpoint that is removed and begun again has other offsets for the same numbers.
    return offsets_in(checkpoint.read(f"offsets/{batch}"))


def offsets_in(noted: bytes) -> list[object]:
    """Return the end offsets in Spark's file of a batch, as :func:`journaled_offsets` does."""
    return [_offset(line) for line in noted.decode().splitlines()[_HEAD:] if line.strip() not in ("", "-")]


def journaled_at_us(noted: bytes) -> int | None:
    """Return the time of a batch in Spark's file of it, at which all sources had given their offsets."""
    lines = noted.splitlines()
    head: Any = _offset(lines[1].decode()) if len(lines) > 1 else None
    at = head.get("batchTimestampMs") if isinstance(head, dict) else None
    return at * 1000 if isinstance(at, int) and at > 0 else None


def _offset(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line


@dataclasses.dataclass(frozen=True)
class SourceCounts:
    """Rows of all feeds of a query since its checkpoint began, by the journal: whatever a batch does with them."""

    received: int  # rows with a readable time
    late: int  # rows below their feed's low-watermark
    late_idle: int  # late rows that only the rule for silent feeds made late
    suspects: int  # rows kept from moving the watermark that no later row has confirmed yet
    held: int = 0  # the last of the suspects, which the next rows may confirm

    @property
    def hint(self) -> str:
        """The reason why windows stay open, and the remedy; nothing if the last rows are not suspect."""
        if not self.held:
            return ""
        last = "row is" if self.held == 1 else f"{self.held:,} rows are"
        return (
            f"The last {last} suspect: too few later rows confirm times so far ahead. Windows that end there stay "
            "open. If the times are right, set confirmations = 1 for the source. To close all windows at the end of "
            "a run, set on_end = 'close'."
        )


def counts_in(offsets: Iterable[Mapping[str, Any]]) -> SourceCounts | None:
    """Return the counts in the sources' end offsets; None if a source does not inspect its rows or is not ours."""
    sources = [offset for offset in offsets if "tick" not in offset]  # what wakes a queue has no rows
    if not sources or not all(offset.get("looked") for offset in sources):
        return None
    feeds = [state for offset in sources for state in offset["progress"].values()]
    names = ("received", "late", "late_idle", "suspects")
    held = sum(len(state.get("run", ())) for state in feeds if state.get("bound") != AFTER_ALL)
    return SourceCounts(**{name: sum(state.get(name, 0) for state in feeds) for name in names}, held=held)


def journaled_counts(checkpoint: TableFolder, batch_id: int) -> SourceCounts | None:
    """Return the counts up to a batch, from the journal below the query's checkpoint; None if it has none."""
    try:
        found = journaled_offsets(checkpoint, batch_id)
    except (OSError, ValueError):
        return None
    offsets: list[dict[str, Any]] = [each for each in found if isinstance(each, dict)]
    if not offsets or len(offsets) < len(found):
        return None
    folder = times_folder(checkpoint)
    book = OffsetBook(checkpoint)
    return counts_in(_with_reports(book.whole(offset), folder) for offset in offsets)


class ResumePoint(NamedTuple):
    """The batch after which a query resumes."""

    batch: int | None  # None if its first batch was interrupted
    committed_us: int
    rows: int | None  # rows read up to then; None if a source does not count them
    interrupted: bool  # a later batch was planned, and is repeated


def resume_point(checkpoint: TableFolder) -> ResumePoint | None:
    """Return where the query of a checkpoint resumes; None if it has not begun."""
    planned, complete = (noted_batches(checkpoint, folder) for folder in ("offsets", "commits"))
    if not planned:
        return None
    last = max(complete, default=None)
    if last is None:
        return ResumePoint(None, 0, None, interrupted=True)
    counts: SourceCounts | None = None
    with contextlib.suppress(CheckpointError):  # it is for the query to refuse the checkpoint
        counts = journaled_counts(checkpoint, last)
    return ResumePoint(last, complete[last], None if counts is None else counts.received, max(planned) > last)


def noted_batches(checkpoint: TableFolder, folder: str) -> dict[int, int]:
    """Return when each batch that Spark has noted in a folder was noted, in microseconds."""
    return {int(each.name): each.modified_us for each in checkpoint.listing(folder) if each.name.isdigit()}


def _with_reports(offset: dict[str, Any], folder: TableFolder) -> dict[str, Any]:
    """Return the offset with the tasks' counts of its own batch, if tasks and not the driver inspect the rows."""
    unseen = offset.get("unseen")
    if not unseen:
        return offset
    reported = reported_states(folder, offset)
    complete = bool(offset.get("looked")) and unseen.keys() <= reported.keys()
    return {**offset, "looked": complete, "progress": {**offset["progress"], **reported}}
