"""What both stages have in common: how a shard's batch is run, and the state that each shard keeps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ...conf.deep_stack import on_deep_stack
from ...operators.runtime.shard_processor import ShardProcessor
from ...operators.runtime.state_head import check_identity, other_layout, read_head
from .commands import Command
from .deferring import Deferred
from .evaluating import Evaluations
from .host_plan import HostPlan, HostPlans
from .known_queries import KnownQueries
from .messages import Message, read_messages
from .stage_store import Waiting

if TYPE_CHECKING:
    from pyspark.sql import Row

    from ...operators.runtime.store import Store

__all__ = ["Shard", "ShardState", "Stage"]

_VERSION = 1


class Shard(Protocol):
    """One batch of one shard of a stage."""

    def __init__(self, shard: int, plan: HostPlan, store: Store) -> None: ...

    def run(self, messages: list[Message], command: Command) -> pa.Table | None:
        """Take what has come, and return what leaves."""


class Stage(ShardProcessor):
    """Runs each shard's batch.

    Parameters
    ----------
    commands : callable
        Returns the command of the batch.
    plans : HostPlans

    Notes
    -----
    Guarantee: a batch is a function of the state before it, the rows, and the command, which stands in the offsets of
    the batch. A batch that is run again gives the same rows, byte for byte.
    """

    shard: type[Shard]
    """What runs a batch of one shard."""

    def __init__(self, commands: Callable[[], Command], plans: HostPlans) -> None:
        self._commands = commands
        self._plans = plans

    def batch(self, shard: int, store: Store, rows: Iterator[Row]) -> pa.Table | None:
        """See :class:`~upstream.operators.runtime.shard_processor.ShardProcessor`."""
        command = self._commands()
        plan = self._plans(command.version)
        return on_deep_stack(lambda: self._made(shard, plan, store).run(read_messages(rows), command))

    def _made(self, shard: int, plan: HostPlan, store: Store) -> Shard:
        return self.shard(shard, plan, store)


class ShardState:
    """The state of a shard that both stages have.

    Parameters
    ----------
    plan : HostPlan
    store : Store

    Attributes
    ----------
    known : KnownQueries
    evaluations : Evaluations
    waiting : Waiting
        Rows or changes that wait for a low-watermark.
    deferred : Deferred
        Changes of results that wait until a batch puts them out.

    Raises
    ------
    CheckpointError
        The state was written for another number of shards, or by another version.
    """

    def __init__(self, plan: HostPlan, store: Store) -> None:
        self._store = store
        self._identity = {"shards": str(plan.shards)}
        self._head = read_head(store)
        if self._head:
            check_identity(
                self._head["plan"],
                self._identity,
                "the queries of this checkpoint were begun",
                "number of shards",
                other_layout(self._head["layout"], _VERSION),
            )
        self.known = KnownQueries(self.saved("queries"))
        self.evaluations = Evaluations(store, self.saved("evaluations"))
        self.waiting = Waiting(store, self.saved("waiting"))
        self.deferred = Deferred(store, self.saved("deferred"))

    def saved(self, name: str) -> dict[str, Any]:
        """Return what the stage saved under a name; empty at first."""
        return self._head.get(name, {})

    def save(self, **more: object) -> None:
        """Write the state, and what the stage has beside it."""
        head: dict[str, Any] = {
            "layout": _VERSION,
            "plan": self._identity,
            "queries": self.known.to_json(),
            "evaluations": self.evaluations.to_json(),
            "waiting": self.waiting.to_json(),
            "deferred": self.deferred.to_json(),
            **more,
        }
        self._store.put("head", 0, json.dumps(head).encode())
