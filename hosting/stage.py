"""The common part of both stages: a shard's batch and its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ..conf.deep_stack import on_deep_stack
from ..core.feedback.reports import StageReport, write_report
from ..operators.runtime.shard_processor import ShardProcessor
from ..operators.state.store import check_head, read_head, write_head
from .evaluations import Evaluations, WaitingTables
from .host_plan import HostPlan, HostPlans
from .messages import Command, Message, read_messages
from .output import DeferredChanges, KnownQueries

if TYPE_CHECKING:
    from pyspark.sql import Row

    from ..operators.state.store import Store


class StageShard(Protocol):
    """One batch of one shard of a stage."""

    def __init__(self, shard: int, plan: HostPlan, store: Store) -> None: ...

    def run(self, messages: list[Message], command: Command) -> pa.Table | None:
        """Process the messages of a batch, and return the rows to send."""

    @property
    def state(self) -> StageState: ...


class Stage(ShardProcessor):
    """Runs each shard's batch, and has the shards report their state to the folder `reports`.

    Guarantee: a batch is a function of the state before it, the rows, and the command in the batch's offsets. A rerun
    gives the same rows, byte for byte.
    """

    shard: type[StageShard]
    """The class that runs a batch of one shard."""

    def __init__(self, commands: Callable[[], Command], plans: HostPlans, reports: str | None = None) -> None:
        self._commands = commands
        self._plans = plans
        self._reports = reports

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        command = self._commands()
        plan = self._plans(command.version)
        made = self._made(shard, plan, store)
        left = on_deep_stack(lambda: made.run(read_messages(rows), command))
        if self._reports is not None and made.state.holds != made.state.held:
            write_report(self._reports, StageReport(shard, **made.state.holds))
        return left

    def _made(self, shard: int, plan: HostPlan, store: Store) -> StageShard:
        return self.shard(shard, plan, store)


class StageState:
    """The state of a shard, in either stage.

    `waiting` has rows or changes that wait for a low-watermark; `deferred` has results that wait for a later batch.
    Raises CheckpointError if the state was written for another number of shards or by another version.
    """

    def __init__(self, plan: HostPlan, store: Store) -> None:
        self._store = store
        self._identity = {"shards": str(plan.shards)}
        self._head = read_head(store)
        check_head(self._head, self._identity, "the queries of this checkpoint were begun", "number of shards")
        self.known = KnownQueries(self.saved("queries"))
        self.evaluations = Evaluations(store, self.saved("evaluations"))
        self.waiting = WaitingTables(store, self.saved("waiting"))
        self.deferred = DeferredChanges(store, self.saved("deferred"))
        self.held = self.saved("held")
        """:attr:`holds` after the previous batch."""
        self._ahead: dict[str, tuple[int, int]] = dict(self.saved("ahead"))

    def saved(self, name: str) -> dict[str, Any]:
        """Return the stage's saved value of this name; empty at first."""
        return self._head.get(name, {})

    def hold(self, name: str, least_us: int | None, now_us: int) -> None:
        """Note that rows wait for a first low-watermark: their least event time, and their arrival."""
        if least_us is not None:
            least, since = self._ahead.get(name, (least_us, now_us))
            self._ahead[name] = min(least, least_us), since

    def release(self, name: str) -> None:
        """Forget the rows that :meth:`hold` noted."""
        self._ahead.pop(name, None)

    def keep(self, names: set[str]) -> None:
        """Forget the rows and changes that wait under other names."""
        self.waiting.keep(names)
        self._ahead = {name: held for name, held in self._ahead.items() if name in names}

    @property
    def holds(self) -> dict[str, Any]:
        """The values of the shard's ``StageReport``."""
        found = self.evaluations
        needs = [least + 1 for least, _ in self._ahead.values()]
        since = [since for _, since in self._ahead.values()]
        needs += [] if found.needs is None else [found.needs]
        since += [] if found.held_since_us is None else [found.held_since_us]
        return {
            "needs": min(needs, default=None),
            "held_since_us": min(since, default=None),
            "behind": found.behind,
        }

    def save(self, **more: object) -> None:
        """Write the state, with the stage's own values `more`."""
        head: dict[str, Any] = {
            "queries": self.known.to_json(),
            "evaluations": self.evaluations.to_json(),
            "waiting": self.waiting.to_json(),
            "deferred": self.deferred.to_json(),
            "held": self.holds,
            "ahead": self._ahead,
            **more,
        }
        write_head(self._store, self._identity, head)
