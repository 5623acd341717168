"""Defects that the product had, or could have, each put in by a patch of the function that prevents it: the simulation
must find every one. docs/simulation.md says what each of them does.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Defect:
    """What patches the product of this process, and which scenarios find it, from the first seed to try."""

    profile: str
    seed: int
    put_back: Callable[[], None]


DEFECTS: dict[str, Defect] = {}


def _found_by(profile: str, seed: int = 0) -> Callable[[Callable[[], None]], None]:
    def enter(put_back: Callable[[], None]) -> None:
        DEFECTS[put_back.__name__.strip("_").replace("_", "-")] = Defect(profile, seed, put_back)

    return enter


def _nothing(*_: Any) -> None: ...


def _empty(*_: Any) -> dict[str, int]:
    return {}


@_found_by("restore")
def _restored_checkpoint() -> None:
    from upstream.sink.commit.batch_identity import BatchIdentity

    def repeats(self: BatchIdentity, table: Any, recorded: int | None) -> bool:
        del table
        return self.target.repeatable and recorded is not None and recorded >= self.number

    BatchIdentity.repeats = repeats  # type: ignore[method-assign]


@_found_by("two_writes")
def _second_write() -> None:
    from upstream.sink.commit.running_batch import Calls

    @contextlib.contextmanager
    def call(self: Calls, batch: Any, location: str) -> Generator[int]:
        del self, batch, location
        yield 0

    Calls.call = call  # type: ignore[method-assign]


@_found_by("over")
def _lazy_windows() -> None:
    from upstream.operators.windows.shards import completeness

    mended = completeness.left_out_by_windows
    completeness.left_out_by_windows = lambda plan: None if plan.emit == "lazy" else mended(plan)


@_found_by("windows", 19)
def _feed_without_bound() -> None:
    from upstream.core.watermark.policies import Progress

    Progress.begin = _nothing  # type: ignore[method-assign]


@_found_by("heartbeat")
def _clock_beyond_rows() -> None:
    from upstream.datasource.planner import Planner

    Planner._oldest_us = _nothing  # type: ignore[method-assign]
    Planner._entered = _empty  # type: ignore[method-assign]


@_found_by("ends")
def _open_end() -> None:
    from upstream.core.watermark.policies import Progress

    Progress.close = _nothing  # type: ignore[method-assign]


@_found_by("joins")
def _bound_before_rows() -> None:
    from upstream.operators.joins.shard import JoinShard

    mended = JoinShard._arrived

    def arrived(self: JoinShard, side: int, frames: Any) -> Any:
        found = mended(self, side, frames)
        self._progress.hear(side, found.punctuation)
        other = 1 - side
        self._kept[other].drop_below(self._plan.band.kept_from(other, self._progress.bound(side)))
        return found

    JoinShard._arrived = arrived  # type: ignore[method-assign]


@_found_by("early_joins")
def _nothing_taken_back() -> None:
    from upstream.operators.joins.pairs import Pairs

    Pairs.take_back = _nothing  # type: ignore[method-assign]


@_found_by("ordered_joins")
def _leaves_as_found() -> None:
    from upstream.operators.joins.release.ordered_release import OrderedRelease

    OrderedRelease.leave = lambda *given: given[1]  # type: ignore[method-assign]


@_found_by("limited_joins")
def _sure_without_partner() -> None:
    from upstream.operators.joins.shard import JoinShard

    JoinShard._or_unsure = lambda *given: given[-1]  # type: ignore[method-assign]


@_found_by("table_joins", 31)
def _table_of_now() -> None:
    from upstream.operators.tables import build
    from upstream.operators.tables.reading import latest_version

    build.version_of_batch = lambda *given: latest_version(given[-1], {})  # type: ignore[assignment]


@_found_by("cut")
def _tail_read_again() -> None:
    from upstream.datasource.connectors.kafka.positions import Positions

    mended = Positions._continued

    def continued(self: Positions, position: Any, *given: Any) -> dict[str, Any]:
        state = mended(self, position, *given)
        if state.get("cut"):
            state |= {"at": state["at"] | self._cluster.begins(state["cut"]), "lost": position["lost"], "cut": []}
        return state

    Positions._continued = continued  # type: ignore[method-assign]


@_found_by("hosted", 5)
def _forgotten_tombstone() -> None:
    import polars as pl

    from upstream.queries.hosting import first_stage

    mended = first_stage.rows_of
    first_stage.rows_of = lambda rows: mended(rows).filter(~pl.col("__tombstone"))


@_found_by("hosted", 76)
def _nothing_begins_anew() -> None:
    from upstream.sink.results import table_commit
    from upstream.sink.results.table_start import Start

    mended = table_commit.start_of

    def start_of(table: Any, known: Any, writer: str, begun: Any) -> Start:
        found = mended(table, known, writer, begun)
        return found._replace(begins=found.begins and (not known.exists or bool(found.actions)))

    table_commit.start_of = start_of


@_found_by("hosted")
def _batch_twice() -> None:
    from upstream.sink.results.table_commit import TableCommit

    TableCommit._repeats = lambda *_: False  # type: ignore[method-assign]


@_found_by("hosted")
def _registry_of_now() -> None:
    from upstream.queries.hosting import commands, running
    from upstream.queries.registry.journal import Journal

    from . import hosted_process

    mended = commands.command_of_batch

    def command_of_batch(checkpoint: str, batch: int) -> Any:
        return dataclasses.replace(mended(checkpoint, batch), version=Journal(checkpoint).version())

    for module in (commands, running, hosted_process):
        module.command_of_batch = command_of_batch


@_found_by("hosted", 4)
def _all_served() -> None:
    from upstream.queries.hosting import commands

    mended = commands._command
    commands._command = lambda *given: dataclasses.replace(mended(*given), served=None)


@_found_by("hosted", 4)
def _relation_of_now() -> None:
    from upstream.operators.tables.reading import Version, pinned_table
    from upstream.queries.hosting import stored_rows

    mended = stored_rows.rows_at

    def rows_at(location: str, options: Any, schema: Any, version: Version, hint: str) -> Any:
        del version
        return mended(location, options, schema, pinned_table(location, {})[0], hint)

    stored_rows.rows_at = rows_at


@_found_by("hosted", 27)
def _deleted_again() -> None:
    from upstream.queries.hosting import dropping

    mended = dropping.delete_result
    dropping.delete_result = lambda *given: mended(*given[:3], 1 << 60, *given[4:])


@_found_by("hosted", 4)
def _never_deleted() -> None:
    from upstream.queries.hosting.dropping import DroppedTables

    DroppedTables.delete = _nothing  # type: ignore[method-assign]


@_found_by("hosted", 4)
def _waits_forgotten() -> None:
    from upstream.queries.hosting.deferring import Deferred

    Deferred.to_json = _empty  # type: ignore[method-assign]


@_found_by("hosted")
def _state_of_nobody() -> None:
    from upstream.queries.hosting.evaluating import Evaluations

    Evaluations.keep = _nothing  # type: ignore[method-assign]
