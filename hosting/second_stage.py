"""The second stage: computes, over the first stage's changes, what needs another key than that of the streams."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import polars as pl
import pyarrow as pa

from ..core.rows.frames import from_frame
from ..operators.relations.plan.nodes import Node
from ..operators.relations.zsets import TIME
from ..operators.state.store import Store
from .evaluations import BatchContext, PlanEvaluation
from .host_plan import Domain, HostPlan, PlacedQuery, named
from .messages import Command, Message, Outbox, by_kind
from .output import ResultOutput
from .results import Stamp
from .stage import Stage, StageState

_OWN = ("changes", "heard")


class SecondShard:
    """One batch of one shard of the second stage."""

    def __init__(self, shard: int, plan: HostPlan, store: Store) -> None:
        self._shard = shard
        self._plan = plan
        self.state = StageState(plan, store)
        self._known = self.state.known
        self._heard = _Heard(self.state.saved("heard"))
        self._out = Outbox(plan.slots)

    def run(self, messages: list[Message], command: Command) -> pa.Table | None:
        plan, known = self._plan, self._known
        for message in messages:
            if message.kind not in _OWN:
                self._out.put(self._shard, message.text, message.frame)
        kinds = by_kind(messages)
        known.follow(plan)
        self._heard.hear(kinds.get("heard", []))
        came = _tables(kinds.get("changes", []))
        results = ResultOutput(plan, known, self._out, self.state.deferred, command.served)
        groups = self._groups()
        self.state.evaluations.keep(set(groups))
        self.state.keep({name for _, _, given in groups.values() for name in given})
        for name, (domain, jobs, given) in groups.items():
            moment, first = self._heard.moment(domain, plan.shards)
            received = self._received(given, came, domain, moment)
            if received is None:
                continue
            stepped = self.state.evaluations.step(name, domain.clock, jobs, moment, {}, received)
            for each, node in given.items():
                if node in stepped.ahead:
                    self.state.waiting.put(each, stepped.ahead[node].to_arrow(compat_level=pl.CompatLevel.oldest()))
            for job, reason in stepped.failed.items():
                known.fail(jobs[job].ids, reason)
            for job in stepped.begun:
                (query,) = jobs[job].queries
                pieces = [known.job_name(query, each) for each in query.pieces]
                results.begin(query, self._heard.whole_from(pieces), moment.since)
            stamp = Stamp(command.batch, self._shard, plan.shards, moment.now_us, first)
            for job, changes in stepped.changes.items():
                results.take(jobs[job].queries[0], changes, stamp)
        self._heard.forget({name for _, _, given in groups.values() for name in given})
        results.close(Stamp(command.batch, self._shard, plan.shards, self._heard.now_us, self._heard.now_us))
        self.state.save(heard=self._heard.to_json())
        return self._out.table() if len(self._out) else None

    def _groups(self) -> dict[str, tuple[Domain, dict[str, PlanEvaluation], dict[str, Node]]]:
        """Return each evaluation of this shard: its domain, its jobs, and its inputs by job of the first stage."""
        found: dict[str, tuple[Domain, dict[str, PlanEvaluation], dict[str, Node]]] = {}
        for query in self._known.running(self._plan):
            if query.second is None or query.shard not in (None, self._shard):
                continue
            given = {self._known.job_name(query, each): each.fragment.plan for each in query.pieces}
            name = _group_name(query, given)
            _, jobs, _ = found.setdefault(name, (query.domain, {}, given))
            job = str(query.id)
            collapse = query.result.kind == "latest"
            jobs[job] = PlanEvaluation(job, query.second, (query,), given=tuple(given.values()), collapse=collapse)
        return found

    def _received(
        self, given: Mapping[str, Node], came: Mapping[str, pa.Table], domain: Domain, moment: BatchContext
    ) -> dict[Node, pl.DataFrame] | None:
        """Return the changes below the low-watermark, and keep the others. None if there is no low-watermark yet."""
        waits = moment.low_watermark is None and domain.clock == "event"
        found: dict[Node, pl.DataFrame] = {}
        for name, node in given.items():
            if waits:
                if name in came:
                    self.state.waiting.put(name, came[name])
                continue
            tables = [*self.state.waiting.take(name), *([came[name]] if name in came else [])]
            if tables:
                frame = pl.from_arrow(pa.concat_tables(tables))
                assert isinstance(frame, pl.DataFrame)
                if domain.clock == "event":
                    due = pl.col(TIME) < moment.low_watermark
                    self.state.waiting.put(name, frame.filter(~due).to_arrow(compat_level=pl.CompatLevel.oldest()))
                    frame = frame.filter(due)
                found[node] = frame
        return None if waits else found


class SecondStage(Stage):
    """The stage that evaluates the first stage's changes; see :class:`~.stage.Stage`."""

    state = "upstream_queries_second_v1"
    shard = SecondShard


class _Heard:
    """The progress of each shard of the first stage."""

    def __init__(self, saved: Any) -> None:
        self._domains: dict[str, dict[str, int | None]] = saved.get("domains", {})
        self._whole: dict[str, int | None] = saved.get("whole", {})
        self.now_us = int(saved.get("now", 0))
        self._firsts: dict[str, int] = {}
        self._sinces: dict[str, int | None] = {}

    def to_json(self) -> dict[str, Any]:
        return {"domains": self._domains, "whole": self._whole, "now": self.now_us}

    def hear(self, messages: Iterable[Message]) -> None:
        for message in messages:
            control = message.control
            self._domains[str(control["shard"])] = {name: low for name, (low, _, _) in control["domains"].items()}
            self.now_us = max(self.now_us, int(control["now"]))
            for name, (_, first, since) in control["domains"].items():
                self._sinces[name] = since
                self._firsts[name] = min(first, self._firsts.get(name, first))
            for name, since in control["whole"].items():
                known = self._whole.get(name, since)
                self._whole[name] = None if since is None or known is None else max(since, known)

    def moment(self, domain: Domain, shards: int) -> tuple[BatchContext, int]:
        """Return the time to which a domain is evaluated, and the arrival of the oldest row behind it."""
        lows = [each.get(domain.name) for each in self._domains.values()]
        known = [low for low in lows if low is not None]
        low = min(known) if len(known) == shards else None
        moment = BatchContext(None, low, self.now_us, self._sinces.get(domain.name))
        return moment, self._firsts.get(domain.name, self.now_us)

    def whole_from(self, jobs: Iterable[str]) -> int | None:
        """Return the time from which the changes of all given jobs are complete; None if unknown."""
        since = [self._whole.get(name) for name in jobs]
        known = [each for each in since if each is not None]
        return max(known) if len(known) == len(since) else None

    def forget(self, but: set[str]) -> None:
        self._whole = {name: since for name, since in self._whole.items() if name in but}


def _group_name(query: PlacedQuery, given: Mapping[str, Node]) -> str:
    """Return the name of a query's evaluation: the same for queries with the same inputs."""
    return named("second", query.domain.name, query.shard, sorted(given))


def _tables(messages: Iterable[Message]) -> dict[str, pa.Table]:
    """Return changes by job, in the order of the shards that sent them."""
    found: dict[str, list[tuple[int, bytes]]] = {}
    for message in messages:
        assert message.frame is not None
        found.setdefault(message.control["job"], []).append((message.control["shard"], message.frame))
    return {
        job: pa.concat_tables([from_frame(frame) for _, frame in sorted(each, key=lambda one: one[0])])
        for job, each in found.items()
    }
