"""One step of an evaluation: each operator once, after its inputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from ...core.rows.exact_integers import LOWEST
from .arrived import NewestArrived
from .contents import Contents, Running
from .failures import FAILURES, attributed
from .streams import SEQUENCE, TOMBSTONE, Sampled, Source
from .zsets import BEGINNING, TIME, WEIGHT, Span, collapsed

__all__ = ["Stepping"]


class Stepping:
    """A step of operators.

    An operator computes all change points if a query needs them, and the net change at the end of the step otherwise.
    Queries that need different ones share it: what is computed at all change points is collapsed for the others.

    Parameters
    ----------
    running : mapping of str to Running
        The operators, each after its inputs.
    span : Span
    begins : bool
        Whether this is the first step of all.

    Attributes
    ----------
    failed : dict of str to BaseException
        By query.
    stepped : bool
        Whether any operator had something to do.
    """

    def __init__(self, running: Mapping[str, Running], span: Span, *, begins: bool) -> None:
        self._running = running
        self._span = span
        self._begins = begins
        self._there = Contents(running, span)
        self._results: dict[str, pl.DataFrame] = {}
        self._collapsed: dict[str, pl.DataFrame] = {}
        self._late: dict[str, list[pl.DataFrame]] = {}
        self._newest: dict[str, int] = {}
        self.failed: dict[str, BaseException] = {}
        self.stepped = False

    def find(self, tops: Iterable[str]) -> None:
        """Find what new operators, and new queries with these ones at their top, begin with: before any other step."""
        new = False
        for each in self._running.values():
            if not each.begun:
                self._there.find(each.part)
                new = True
        if new:
            operators = {key: each.operator for key, each in self._running.items()}
            self._newest = {key: each.newest for key, each in operators.items() if isinstance(each, Source)}
        for key in tops:
            if self._there.has(key):
                self._there.of(key)

    def run(self, streams: Mapping[str, pl.DataFrame], given: Mapping[str, pl.DataFrame]) -> None:
        """Step all operators."""
        broken: set[str] = set()
        for key, each in self._running.items():
            if broken and not broken.isdisjoint(each.part.inputs):
                broken.add(key)
                continue
            if each.begun and self._rests(key, each, streams, given):
                continue
            each.described = None
            self.stepped = True
            try:
                found = self._stepped(each, streams, given)
                if found.height:
                    self._results[key] = found
            except FAILURES as error:
                broken.add(key)
                cause = attributed(error)
                self.failed.update((name, cause) for name in each.users if name not in self.failed)
                continue
            if isinstance(each.operator, Source | NewestArrived) and each.operator.late().height:
                self._late.setdefault(self._stream_of(each), []).append(each.operator.late())

    def changes(self, key: str, *, net: bool, new: bool) -> pl.DataFrame:
        """Return the changes of an operator's result.

        Parameters
        ----------
        key : str
        net : bool
            Whether the net change at the end of the step is enough. Of a stream all changes count.
        new : bool
            Whether what was there before comes first.
        """
        if not new and key not in self._results:
            return self._running[key].operator.nothing
        found = self._results.get(key, self._running[key].operator.nothing)
        stream = self._running[key].part.is_stream
        if new and self._there.has(key):
            found = pl.concat([self._there.of(key), found])
            return found if stream or not net else collapsed(found, self._span.until - 1)
        if stream or not net or found.height == 0:
            return found
        if key not in self._collapsed:
            self._collapsed[key] = collapsed(found, self._span.until - 1)
        return self._collapsed[key]

    def lacks(self, key: str) -> bool:
        """Return whether a query that begins with an operator's contents lacks some of them."""
        return self._there.lacks(key)

    def late(self) -> dict[str, pl.DataFrame]:
        """Return the rows that one or several operators put aside, by stream."""
        found: dict[str, pl.DataFrame] = {}
        for stream, some in self._late.items():
            rows = some[0] if len(some) == 1 else pl.concat(some).unique(maintain_order=True)
            found[stream] = rows.drop(SEQUENCE, TOMBSTONE, TIME, WEIGHT)
        return found

    def _rests(
        self, key: str, each: Running, streams: Mapping[str, pl.DataFrame], given: Mapping[str, pl.DataFrame]
    ) -> bool:
        """Return whether an operator has nothing to do."""
        part = each.part
        if part.inputs:
            return self._results.keys().isdisjoint(part.inputs) and not each.operator.acts(self._span)
        came = streams.get(part.stream) if part.stream else given.get(key)
        return (came is None or came.height == 0) and not each.operator.acts(self._span)

    def _stepped(
        self, each: Running, streams: Mapping[str, pl.DataFrame], given: Mapping[str, pl.DataFrame]
    ) -> pl.DataFrame:
        part, net = each.part, not each.points
        if part.stream:
            inputs = [streams.get(part.stream, each.operator.nothing)]
        elif not part.inputs:
            inputs = [given.get(part.key, each.operator.nothing)]
        else:
            inputs = [self.changes(key, net=net, new=not each.begun) for key in part.inputs]
        if not each.begun:
            each.whole_from = self._whole_from(each)
        return each.operator.step(inputs, self._span._replace(net=net))

    def _whole_from(self, each: Running) -> int | None:
        if self._begins:
            return BEGINNING
        since = [self._span.before] if not each.part.inputs else []
        for key in each.part.inputs:
            below = self._running[key]
            if below.begun and (below.part.is_stream or below.operator.forgets):
                if not below.part.is_stream:
                    return None
                since.append(max(self._span.before, self._seen(key) + 1))
            elif below.whole_from is None or self._there.lacks(key):
                return None
            else:
                since.append(below.whole_from)
        return each.operator.whole_from(max(since))

    def _seen(self, key: str) -> int:
        """Return the greatest time of the rows of a stream that came before this step."""
        while isinstance((each := self._running[key]).operator, Sampled):
            key = each.part.inputs[0]
        return self._newest.get(key, LOWEST)

    def _stream_of(self, each: Running) -> str:
        """Return the stream of the catalogue below a window."""
        while not each.part.stream:
            each = self._running[each.part.inputs[0]]
        return each.part.stream
