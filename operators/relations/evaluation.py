"""Evaluate many continuous queries together; the parts that they share are computed once."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import polars as pl

from ...conf.errors import CheckpointError, OptionError, QueryRefusedError
from ...core.rows.exact_integers import HIGHEST, LOWEST
from ..queue.queue import Control
from ..state.store import Store, StorePart, read_head
from .arrangement import OperatorState
from .changes import RelationStream
from .operator import FAILURES, attributed, computed
from .physical_plan import Compile, OperatorBuild, parts
from .plan.identity import identity
from .plan.nodes import Lifetime, Node, WindowOver, walk
from .plan.properties import Clock, on_arrival
from .queue_project import QueueProjectOperator, QueueStep
from .slice_plan import Families, is_family
from .stateless import InputRelation
from .step import OperatorRun, StepRun
from .streams import StreamSource
from .windows import RowLifetimes
from .zsets import BEGINNING, TIME, Span, in_order_of_time, int64s

_HEAD, _OPERATORS, _QUERIES = "head", "operators", "queries"


@dataclass(frozen=True)
class EvaluationStep:
    """The result of one step.

    Late rows are below the low-watermark or without a time, and are in no result.
    By the arrival clock, a row with a time is late only if it might bring a deleted row back.
    """

    # By query, in order of time: retractions and insertions, or a stream's rows by weight.
    changes: dict[str, pl.DataFrame]
    late: dict[str, pl.DataFrame] = field(default_factory=dict)  # By stream, with :data:`~.streams.TOMBSTONE`.
    # The queries that failed, and why. They are removed; the others continue.
    failed: dict[str, BaseException] = field(default_factory=dict)
    watched: dict[str, pl.DataFrame] = field(default_factory=dict)  # Changes of parts that the caller asked for.
    queues: Mapping[str, QueueStep] = field(default_factory=dict)  # The figures of the queues, by query.


class PartFigures(NamedTuple):
    """The cost of an operator, and its state."""

    key: str
    queries: Collection[str]
    spent_s: float  # in the last step
    average_s: float  # of a step with work
    rows: int  # changes of the last step with work
    bytes: int  # of its state
    beside: tuple[str, ...] = ()  # the keys of operators that keep its slices, or rows for it and its like


class Evaluation:
    """Queries over the same streams, evaluated step by step.

    A step is a function of the state, the rows and the low-watermark: repeated from the saved state, it returns the
    same. Neither the order of arrival nor the split into steps changes the sum of the results. Equal parts of queries
    share one state. A query that is added later starts from the state of the parts it shares.

    A store that another evaluation of the same ``name`` saved continues it: add the same queries, then step.

    By the ``event`` clock, rows count from their event times, and results are those below the low-watermark. By the
    ``arrival`` clock, rows count at once. Plans may then read only newest rows
    (:func:`~upstream.operators.relations.plan.properties.on_arrival`), and intermediate results depend on the split
    into steps.
    """

    def __init__(
        self,
        store: Store,
        compile_: Compile = computed,
        clock: Clock = "event",
        name: str = "",
    ) -> None:
        self._name = name
        self._store = StorePart(store, name)
        self._compile = compile_
        self._clock: Clock = clock
        head = read_head(self._store)
        if head.get("clock", clock) != clock:
            raise CheckpointError(
                f"the state was written by the clock of {head['clock']}",
                expected=f"clock={head['clock']!r}, as at the start",
                hint="begin with an empty store for the other clock",
            )
        self.low_watermark: int | None = head.get("low_watermark")
        self.now: int | None = head.get("now")
        self.token: str | None = head.get("token")
        self._lineage = lineage_of(self.token or uuid4().hex)
        operators = self._store.get(_OPERATORS, 0)
        self._saved: dict[str, dict[str, Any]] = {} if operators is None else json.loads(operators)
        self._changed = False
        known = self._store.get(_QUERIES, 0)
        self._known: dict[str, str] = {} if known is None else json.loads(known)
        self._running: dict[str, OperatorRun] = {}
        self._families = Families(self._values_of, self._has_begun, {key for key in self._saved if is_family(key)})
        self._tops: dict[str, str] = {}
        self._collapses: set[str] = set()
        self._lacking: set[str] = set(head.get("lacking", ()))

    @property
    def queries(self) -> list[str]:
        return list(self._tops)

    @property
    def operators(self) -> int:
        return len(self._running)

    @property
    def rows_kept(self) -> int:
        return sum(each.state.rows for each in self._running.values())

    @property
    def waits(self) -> bool:
        """True if rows wait in a queue."""
        return any(each.waits for each in self._queues)

    @property
    def _queues(self) -> list[QueueProjectOperator]:
        return [each.operator for each in self._running.values() if isinstance(each.operator, QueueProjectOperator)]

    @property
    def due(self) -> int | None:
        """The low-watermark above which a step without rows changes something; None if none does."""
        low = LOWEST if self.low_watermark is None else self.low_watermark
        known = (each.operator.due(low) for each in self._running.values())
        return min((each for each in known if each is not None), default=None)

    def add(self, name: str, plan: Node, given: Collection[Node] = (), *, collapse: bool = False) -> None:
        """Add a query, from the next step on. The changes of the ``given`` parts of its plan are computed elsewhere.

        With ``collapse``, the net change of each step is enough, and has the step's last time. A row that comes and
        leaves within a step is then in no result and causes no error. Below ISTREAM, DSTREAM and RSTREAM, all changes
        are computed.
        """
        if name in self._tops:
            raise OptionError(
                f"there is a query {name}", expected="a name of its own", hint="remove the other one first"
            )
        if self._clock == "arrival" and not on_arrival(plan):
            raise _not_on_arrival(name, plan)
        self._changed = True
        made: dict[str, OperatorRun] = {}
        wanted: set[str] = set()
        points: set[str] = set()
        families = set(self._families.keys)
        try:
            for part in parts(plan, self._compile, given, self._clock, self._families, points=not collapse):
                wanted.add(part.key)
                if part.points:
                    points.add(part.key)
                if part.key not in self._running and part.key not in made:
                    made[part.key] = self._made(part)
        except BaseException:  # another query may share what this one has taken
            self._saved |= {key: json.loads(each.describe()) for key, each in made.items() if each.begun}
            self._families.keys &= families
            raise
        self._running.update(made)
        for each in made.values():
            each.operator.over([self._running[key].operator for key in each.part.inputs])
        for key in wanted:
            self._running[key].users.add(name)
        for key in points:
            self._running[key].points.add(name)
        if collapse:
            self._collapses.add(name)
        self._tops[name] = identity(plan)

    def remove(self, name: str) -> None:
        """Remove a query. The next step forgets the state that no other query needs."""
        if name not in self._tops:
            raise OptionError(f"there is no query {name}", expected=f"one of {', '.join(self._tops)}")
        self._changed = True
        del self._tops[name]
        self._known.pop(name, None)
        self._collapses.discard(name)
        self._lacking.discard(name)
        for key, each in list(self._running.items()):
            each.users.discard(name)
            each.points.discard(name)
            if not each.users:
                each.operator.end()
                if each.begun:
                    self._saved[key] = json.loads(each.describe())
                else:
                    self._families.keys.discard(key)
                del self._running[key]

    def forget(self) -> None:
        """Forget unneeded state now. Over a saved store, first add its queries: until then no state is needed."""
        self._forget()
        for each in self._running.values():
            each.operator.forget()
            each.described = None
        self._changed = True

    def complete_from(self, name: str) -> int | None:
        """Return the time from which a query's result is complete; None if that is never certain.

        A query that is added later waits for its windows to fill, or inherits the time of the state it starts from. It
        is never certain if no state retains the rows of an unbounded window.
        """
        return None if name in self._lacking else self._running[self._tops[name]].complete_from

    def begins(self, stream: str) -> frozenset[str]:
        """Return the queries that read a stream whose operator has not begun: they need a stored relation whole."""
        operators = self._running.values()
        new = (each.users for each in operators if each.part.stream == stream and not each.begun)
        return frozenset[str]().union(*new)

    def step(
        self,
        streams: Mapping[str, pl.DataFrame],
        low_watermark: int,
        received: Mapping[Node, pl.DataFrame] | None = None,
        now: int | None = None,
        watch: Collection[str] = (),
        queues: Mapping[str, Control] | None = None,
    ) -> EvaluationStep:
        """Take rows, and evaluate all queries below the low-watermark, or, by the arrival clock, at ``now``.

        Rows may have the columns :data:`~.streams.SEQUENCE` and :data:`~.streams.TOMBSTONE`. ``received`` holds the
        changes, below the low-watermark, of the relations that were ``given``. By the arrival clock only, ``now`` is
        the time of the step's changes, raised to 1 µs after the step before if needed. ``watch`` has the identities
        of parts whose changes the result has, too. ``queues`` has the instructions to the queues of queries.
        """
        span = self._span(low_watermark, now)
        self.token = None
        self._forget()
        given = {identity(node): frame for node, frame in (received or {}).items()}
        step = StepRun(self._running, span, begins=self.low_watermark is None)
        step.find(key for name, key in self._tops.items() if self._is_new(name))
        for queue in self._queues:
            queue.control, queue.arrivals = (queues or {}).get(queue.query), streams.get(queue.stream)
            queue.figures = None
        step.run(streams, given)
        figures = {each.query: each.figures for each in self._queues if each.figures is not None}
        self._changed |= step.stepped
        changes: dict[str, pl.DataFrame] = {}
        for name, key in self._tops.items():
            if name in step.failed:
                continue
            try:
                found = step.changes(key, net=name in self._collapses, new=self._is_new(name))
                changes[name] = in_order_of_time(found)
            except FAILURES as error:
                step.failed[name] = attributed(error)
                continue
            if self._is_new(name) and step.lacks(key):
                self._lacking.add(name)
        for each in self._running.values():
            each.begun = True
        for name in step.failed:
            self.remove(name)
        self._forget()  # what a failure left behind is not a state to come back to
        self._changed |= self._known != self._tops
        self._known = dict(self._tops)
        self.low_watermark = low_watermark
        if self._clock == "arrival":
            self.now = span.until - 1
        return EvaluationStep(changes, step.late(), step.failed, step.results(watch) if watch else {}, figures)

    def figures(self) -> list[PartFigures]:
        """Return the figures of each operator, without relations that are computed elsewhere."""
        return [
            PartFigures(
                key, each.users, each.spent_s, each.average_s, each.rows, each.bytes, each.part.beside
            )
            for key, each in self._running.items()
            if not isinstance(each.operator, InputRelation)
        ]  # fmt: skip

    def reach(self, streams: Mapping[str, pl.DataFrame], received: Mapping[Node, pl.DataFrame], until: int) -> int:
        """Return the low-watermark for the next step: not past too many periods of a jump of event time at once."""
        periodic = [each.operator for each in self._running.values() if isinstance(each.operator, RelationStream)]
        came = sum(frame.height for frame in (*streams.values(), *received.values()))
        lengths = {each: length for each in periodic if (length := each.reach(came, len(periodic))) is not None}
        reach = self._until(lengths, streams, received, until) if lengths else until
        for each in periodic:
            each.is_behind = reach < until
        return reach

    def _until(
        self,
        lengths: Mapping[RelationStream, int],
        streams: Mapping[str, pl.DataFrame],
        received: Mapping[Node, pl.DataFrame],
        until: int,
    ) -> int:
        """Return the low-watermark up to which each stream of a relation emits for at most its length.

        An empty relation emits nothing before the next change of any operator. At the end of all input, none emits
        anything after the last change.
        """
        times = {identity(node): int64s(frame, TIME) for node, frame in received.items() if frame.height}
        for key, each in self._running.items():
            if isinstance(each.operator, StreamSource) and each.part.stream in streams:
                times[key] = each.operator.times(streams[each.part.stream])
        came = [int(each.min()) for each in times.values() if len(each)]
        start = self.low_watermark
        if start is None or start == LOWEST:
            start = min((each for each in came if each > BEGINNING), default=None)
            if start is None:
                return until
        if start + min(lengths.values()) >= until:
            return until
        changes = [*came, *(each.operator.following(start) for each in self._running.values())]
        following = min((max(each, start) for each in changes if each is not None), default=HIGHEST)
        reach = min(until, *((start if each.rows else following) + length for each, length in lengths.items()))
        if until < HIGHEST or reach == HIGHEST:
            return reach
        last, certain = self._rests_from({key: int(each.max()) + 1 for key, each in times.items() if len(each)}, start)
        return reach if last > reach else HIGHEST if certain else last

    def _rests_from(self, inputs: Mapping[str, int], start: int) -> tuple[int, bool]:
        """Return a time from which nothing changes if no rows follow, and whether rows that will come cannot defer it.

        ``inputs`` has the time from which each operator without inputs changes nothing.
        """
        rests: dict[str, int] = {}
        certain = True
        for key, each in self._running.items():
            below = max((rests[one] for one in each.part.inputs), default=inputs.get(key, start))
            rests[key] = each.operator.rests_from(below)
            certain &= not isinstance(each.operator, RowLifetimes) or below <= start
        return max(rests.values(), default=start), certain

    def save(self) -> None:
        """Write unsaved state. An evaluation over the same store continues from here."""
        self._forget()
        if self._changed:
            for each in self._running.values():
                if each.described is None:
                    each.state.release()
            operators = (f"{json.dumps(key)}:{each.describe()}" for key, each in self._running.items() if each.begun)
            self._store.put(_OPERATORS, 0, f"{{{','.join(operators)}}}".encode())
            self._store.put(_QUERIES, 0, json.dumps(self._known).encode())
            self._changed = False
        self.token = f"{self._lineage}.{uuid4().hex}"
        head: dict[str, object] = {"clock": self._clock, "low_watermark": self.low_watermark, "now": self.now}
        head |= {"token": self.token, "lacking": sorted(self._lacking)}
        self._store.put(_HEAD, 0, json.dumps(head).encode())

    def clear(self) -> None:
        for name in list(self._tops):
            self.remove(name)
        self._forget()
        for kind in (_HEAD, _OPERATORS, _QUERIES):
            self._store.remove(kind, 0)
        self.token = None

    def rebind(self, store: Store) -> bool:
        """Continue over the store of the next batch if it is as this evaluation left it; otherwise return False.

        To build an evaluation costs more than a step with few rows. It cannot be reused after a batch that did not
        reach :meth:`save`, that another process ran, or that runs again.
        """
        if self.token is None or read_head(StorePart(store, self._name)).get("token") != self.token:
            return False
        self._store.store = store
        return True

    def _span(self, low_watermark: int, now: int | None) -> Span:
        begins = self.low_watermark is None
        before = LOWEST if self.low_watermark is None else self.low_watermark
        if low_watermark < before:
            raise OptionError(
                f"the low-watermark goes back from {before} to {low_watermark}", expected=f"{before} or more"
            )
        if (now is None) == (self._clock == "arrival"):
            raise OptionError(
                f"a step by the clock of {self._clock} got now={now}",
                expected="the time of its changes" if now is None else "None: changes have event times",
            )
        if now is None:
            return Span(before, low_watermark, BEGINNING if begins else before - 1)
        last = LOWEST if self.now is None else self.now
        now = max(now, last + 1)
        return Span(LOWEST if begins else last + 1, now + 1, BEGINNING if begins else last, low_watermark)

    def _is_new(self, name: str) -> bool:
        return self._known.get(name) != self._tops[name]

    def _made(self, part: OperatorBuild) -> OperatorRun:
        saved = self._saved.pop(part.key, None)
        state = OperatorState(self._store, part.key, {} if saved is None else saved["state"])
        whole: int | None = BEGINNING if saved is None else saved["complete_from"]
        return OperatorRun(part, part.make(state), state, set(), set(), saved is not None, whole)

    def _values_of(self, key: str) -> Mapping[str, object] | None:
        if key in self._running:
            return self._running[key].state.values
        return self._saved[key]["state"].get("values", {}) if key in self._saved else None

    def _has_begun(self, key: str) -> bool:
        return self._running[key].begun if key in self._running else key in self._saved

    def _forget(self) -> None:
        self._changed |= bool(self._saved)
        for key, saved in self._saved.items():
            OperatorState(self._store, key, saved["state"]).clear()
            self._families.keys.discard(key)
        self._saved.clear()


def lineage_of(token: str) -> str:
    """Return the part of a state's token that all tokens of this state have in common."""
    return token.partition(".")[0]


def _not_on_arrival(name: str, plan: Node) -> QueryRefusedError:
    if any(isinstance(each, Lifetime) for each in walk(plan)):
        return QueryRefusedError(
            f"rows of the query {name} leave as the low-watermark passes their times", hint='the clock "event"'
        )
    waits = next(each for each in walk(plan) if isinstance(each, WindowOver) and not on_arrival(each))
    return QueryRefusedError(
        f"the query {name} has the window {waits.window}, whose rows count when the low-watermark has passed them",
        expected="windows of newest rows only: LATEST(s)",
        hint='evaluate it by the clock "event"',
    )
