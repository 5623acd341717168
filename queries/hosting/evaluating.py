"""One evaluation of a stage in a batch: opened over its state, given the queries in force, stepped, and saved."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from ...core.rows.exact_integers import LOWEST
from ...core.watermark.bounds import is_finite
from ...operators.runtime.state_head import read_head
from ...operators.runtime.store import Store
from ..deltas.evaluation import Evaluation
from ..deltas.failures import FAILURES, attributed, reason_of
from ..deltas.slices_shape import narrowest
from ..deltas.zsets import BEGINNING, TIME
from ..relations.clocks import Clock
from ..relations.nodes import Node
from ..relations.sharing import in_words
from .host_plan import Hosted, Piece
from .stage_store import Part

__all__ = ["Evaluations", "Job", "Moment", "Stepped"]


@dataclass(frozen=True)
class Job:
    """What an evaluation computes for one or several queries.

    Attributes
    ----------
    name : str
    plan : Node
    queries : tuple of Hosted
        The queries that need it.
    piece : Piece or None
        The part of these queries that it computes, in the first stage.
    given : tuple of Node
        Parts of the plan whose changes come from the stage before.
    collapse : bool
        Whether the net change of a step is enough.
    """

    name: str
    plan: Node
    queries: tuple[Hosted, ...]
    piece: Piece | None = None
    given: tuple[Node, ...] = ()
    collapse: bool = False

    @property
    def ids(self) -> list[int]:
        """The incarnations of the queries."""
        return [each.id for each in self.queries]


@dataclass(frozen=True)
class Moment:
    """To which time an evaluation steps.

    Attributes
    ----------
    before : int or None
        The low-watermark before the batch; None if there was none.
    low_watermark : int or None
    now_us : int
        The newest arrival so far.
    since : int or None
        Changes before this time have passed for what begins now; None if none have.
    newest : int
        The greatest event time of the rows that came before the batch; the least number if none did.
    missed : bool
        Whether rows came before the first batch that had the evaluation.
    """

    before: int | None
    low_watermark: int | None
    now_us: int
    since: int | None = None
    newest: int = LOWEST
    missed: bool = False


@dataclass
class Stepped:
    """What a step has found.

    Attributes
    ----------
    changes : dict of str to polars.DataFrame
        By job, where there are some.
    late : dict of str to int
        The number of rows by stream that came below the low-watermark.
    failed : dict of str to str
        Jobs that failed, and why.
    begun : dict of str to (int or None)
        Jobs of which this is the first step: from when on they lack nothing.
    ahead : dict of Node to polars.DataFrame
        Changes that were received and are for a later step: this one did not go all the way to the low-watermark.
    """

    changes: dict[str, pl.DataFrame] = field(default_factory=dict[str, pl.DataFrame])
    late: dict[str, int] = field(default_factory=dict[str, int])
    failed: dict[str, str] = field(default_factory=dict[str, str])
    begun: dict[str, int | None] = field(default_factory=dict[str, "int | None"])
    ahead: Mapping[Node, pl.DataFrame] = field(default_factory=dict[Node, pl.DataFrame])


class Evaluations:
    """The evaluations of a stage in one shard.

    Parameters
    ----------
    store : Store
        The shard's.
    saved
        What :meth:`to_json` gave; empty at first.
    """

    def __init__(self, store: Store, saved: Any) -> None:
        self._store = store
        self._known: dict[str, dict[str, Any]] = dict(saved)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value: what each evaluation computed last, and how far."""
        return self._known

    @property
    def needs(self) -> int | None:
        """The least low-watermark that would change a result of event time; None if none would."""
        return min((each["due"] + 1 for each in self._held()), default=None)

    @property
    def held_since_us(self) -> int | None:
        """Since when, by the arrival of rows, something of event time is held; None if nothing is."""
        return min((each["since"] for each in self._held()), default=None)

    @property
    def behind(self) -> bool:
        """Whether an evaluation has not come as far as its low-watermark."""
        return any(each["behind"] for each in self._known.values())

    def _held(self) -> list[dict[str, Any]]:
        known = [each for each in self._known.values() if each["clock"] == "event" and each["due"] is not None]
        return [each for each in known if is_finite(each["due"])]

    def keep(self, names: set[str]) -> None:
        """Remove the state of all evaluations but these."""
        for name in [each for each in self._known if each not in names]:
            part = Part(self._store, name)
            Evaluation(part, clock=self._known.pop(name)["clock"]).clear()

    def step(
        self,
        name: str,
        clock: Clock,
        jobs: Mapping[str, Job],
        moment: Moment,
        streams: Mapping[str, pl.DataFrame],
        received: Mapping[Node, pl.DataFrame],
        stored: Mapping[str, Callable[[], pl.DataFrame]] | None = None,
        *,
        clears: bool = False,
    ) -> Stepped:
        """Step one evaluation. With nothing to do it is not even opened.

        Parameters
        ----------
        name : str
            The evaluation's.
        clock : str
        jobs : mapping of str to Job
            All that it computes from now on; what is not among them is forgotten.
        moment : Moment
            Its low-watermark is not None, or the clock is that of arrival.
        streams : mapping of str to polars.DataFrame
        received : mapping of Node to polars.DataFrame
        stored : mapping of str to callable
            By stored relation, what reads its rows; called in the step in which a job begins to need them.
        clears : bool
            Whether what only jobs kept that are over is forgotten before others begin. They would start from it.
        """
        known = self._known.get(name)
        low = until = LOWEST if moment.low_watermark is None else moment.low_watermark
        digest = hashlib.sha256("\n".join(sorted(jobs)).encode()).hexdigest()[:16]
        idle = not any(frame.height for frame in (*streams.values(), *received.values()))
        if known is not None and idle and known["jobs"] == digest and not _passes(known, clock, until):
            return Stepped()
        evaluation = _kept.taken(Part(self._store, name), clock)
        now = moment.now_us if clock == "arrival" else None
        begins = known is None
        if begins and moment.before is not None:
            # Rows have passed that this evaluation has not seen: it begins as one that has seen none of them.
            evaluation.step({}, moment.before, now=None if now is None else now - 1)
        before = set() if known is None else set(known["names"])
        found = Stepped()
        running = set(evaluation.queries)
        for each in running - jobs.keys():
            evaluation.remove(each)
        new = [job for job in jobs.values() if job.name not in running]
        if clears:
            _add(evaluation, [job for job in new if job.name in before], found)
            evaluation.forget()
            new = [job for job in new if job.name not in before]
        _add(evaluation, new, found)
        streams = {**streams, **_begun_with(evaluation, stored or {}, found)}
        reach = evaluation.reach(streams, received, until)
        if reach < until:
            until, due = reach, pl.col(TIME) < reach
            found.ahead = {node: ahead for node, frame in received.items() if (ahead := frame.filter(~due)).height}
            received = {node: frame.filter(due) for node, frame in received.items()}
        outcome = evaluation.step(streams, until, received, now=now)
        found.failed |= {job: in_words(reason_of(error), jobs[job].plan) for job, error in outcome.failed.items()}
        found.changes = {job: frame for job, frame in outcome.changes.items() if frame.height}
        found.late = {stream: rows.height for stream, rows in outcome.late.items()}
        there = set(evaluation.queries)
        whole = _Whole({} if known is None else known["whole"], moment, first=begins)
        found.begun = {job: whole.of(evaluation.whole_from(job)) for job in jobs if job in there and job not in before}
        evaluation.save()
        _kept.keep(evaluation)
        names = sorted(there)
        due = evaluation.due
        since = None if known is None or known["due"] is None else known["since"]
        self._known[name] = {
            "clock": clock,
            "jobs": digest,
            "names": names,
            "until": until,
            "due": due,
            "behind": until < low,
            "since": moment.now_us if since is None else since,
            "whole": whole.to_json(),
        }
        return found


def _passes(known: Mapping[str, Any], clock: Clock, until: int) -> bool:
    """Return whether an evaluation has something to do when its low-watermark rises and no rows come."""
    if clock == "event":
        return bool(known["until"] != until)
    due = known["due"]
    return due is not None and due < until


def _add(evaluation: Evaluation, jobs: Iterable[Job], found: Stepped) -> None:
    """Add jobs; those that cannot be evaluated fail."""
    for job in sorted(jobs, key=lambda each: narrowest(each.plan)):
        try:
            evaluation.add(job.name, job.plan, job.given, collapse=job.collapse)
        except FAILURES as error:
            found.failed[job.name] = in_words(str(attributed(error)), job.plan)


def _begun_with(
    evaluation: Evaluation, stored: Mapping[str, Callable[[], pl.DataFrame]], found: Stepped
) -> dict[str, pl.DataFrame]:
    """Return the stored relations with which an evaluation begins; jobs fail for which one cannot be read."""
    rows: dict[str, pl.DataFrame] = {}
    for name, read in stored.items():
        jobs = evaluation.begins(name)
        if jobs:
            try:
                rows[name] = read()
            except FAILURES as error:
                for job in jobs:
                    evaluation.remove(job)
                    found.failed[job] = reason_of(error)
    return rows


class _Kept:
    """Evaluations that this process keeps between batches, by the token that each has written to its state.

    To open one with a thousand queries costs a second. A state that another process went on with, or that a batch is
    run on again, has a token that is not here, so its evaluation is made from the state.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._by_token: OrderedDict[str, Evaluation] = OrderedDict()

    def taken(self, store: Store, clock: Clock) -> Evaluation:
        """Return the evaluation of a state. Nothing else has it then."""
        token = read_head(store).get("token")
        with self._lock:
            kept = None if token is None else self._by_token.pop(token, None)
        return kept if kept is not None and kept.rebind(store) else Evaluation(store, clock=clock)

    def keep(self, evaluation: Evaluation) -> None:
        """Keep an evaluation that is saved; of too many, the one that has not been used for longest is dropped."""
        assert evaluation.token is not None
        with self._lock:
            self._by_token[evaluation.token] = evaluation
            while len(self._by_token) > self._most:
                self._by_token.popitem(last=False)


_kept = _Kept(256)


class _Whole:
    """From when on results lack nothing, where rows came before an evaluation began, or ahead of the low-watermark.

    An evaluation counts from the low-watermark at which a window begins. A row that came before with a greater time is
    not in that window either, so what it gives is whole by as much later.
    """

    def __init__(self, saved: Mapping[str, Any], moment: Moment, *, first: bool) -> None:
        self._later = int(saved.get("later", 0))
        self._unsure = bool(saved.get("unsure", False)) or (first and moment.before is None and moment.missed)
        self._moment = moment

    def to_json(self) -> dict[str, Any]:
        return {"later": self._later, "unsure": self._unsure}

    def of(self, whole_from: int | None) -> int | None:
        """Return the time for a job that begins in this step."""
        if whole_from is None or (whole_from == BEGINNING and self._unsure):
            return None
        if whole_from == BEGINNING:
            return whole_from
        before, newest = self._moment.before, self._moment.newest
        if before is not None and newest != LOWEST:
            self._later = max(self._later, newest + 1 - before)
        return whole_from + self._later
