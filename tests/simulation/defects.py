"""Defects that the product had, or could have, each put in by a patch of the function that prevents it: the simulation
must find every one.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import Any


@dataclasses.dataclass(frozen=True)
class Defect:
    """One of them.

    Attributes
    ----------
    words : str
        What it did.
    profile : str
        Scenarios of which profile find it.
    put_back : callable
        Patches the product of this process.
    seed : int
        The first one to try: a scenario that has found it. Other scenarios of the profile follow.
    """

    words: str
    profile: str
    put_back: Callable[[], None]
    seed: int = 0


def _restored_checkpoint() -> None:
    from upstream.sink.commit.batch_identity import BatchIdentity

    def repeats(self: BatchIdentity, table: Any, recorded: int | None) -> bool:
        del table
        return self.target.repeatable and recorded is not None and recorded >= self.number

    BatchIdentity.repeats = repeats  # type: ignore[method-assign]


def _second_write() -> None:
    from upstream.sink.commit.running_batch import Calls

    @contextlib.contextmanager
    def call(self: Calls, batch: Any, location: str) -> Generator[int]:
        del self, batch, location
        yield 0

    Calls.call = call  # type: ignore[method-assign]


def _lazy_windows() -> None:
    from upstream.operators.windows.shards import completeness

    mended = completeness.left_out_by_windows
    completeness.left_out_by_windows = lambda plan: None if plan.emit == "lazy" else mended(plan)


def _nothing(*_: Any) -> None: ...


def _no_stamps(*_: Any) -> dict[str, int]:
    return {}


def _feed_without_bound() -> None:
    from upstream.core.watermark.policies import Progress

    Progress.begin = _nothing  # type: ignore[method-assign]


def _clock_beyond_rows() -> None:
    from upstream.datasource.planner import Planner

    Planner._oldest_us = _nothing  # type: ignore[method-assign]
    Planner._entered = _no_stamps  # type: ignore[method-assign]


def _open_end() -> None:
    from upstream.core.watermark.policies import Progress

    Progress.close = _nothing  # type: ignore[method-assign]


def _forgotten_tombstone() -> None:
    import polars as pl

    from upstream.queries.hosting import first_stage

    mended = first_stage.rows_of
    first_stage.rows_of = lambda rows: mended(rows).filter(~pl.col("__tombstone"))


def _nothing_begins_anew() -> None:
    from upstream.sink.results import table_commit
    from upstream.sink.results.table_start import Start

    mended = table_commit.start_of

    def start_of(table: Any, known: Any, writer: str, begun: Any) -> Start:
        found = mended(table, known, writer, begun)
        return found._replace(begins=found.begins and (not known.exists or bool(found.actions)))

    table_commit.start_of = start_of


def _batch_twice() -> None:
    from upstream.sink.results.table_commit import TableCommit

    TableCommit._repeats = lambda *_: False  # type: ignore[method-assign]


def _registry_of_now() -> None:
    from upstream.queries.hosting import command_source, commands, running
    from upstream.queries.registry.journal import Journal

    del command_source
    mended = commands.command_of_batch

    def command_of_batch(checkpoint: str, batch: int) -> Any:
        return dataclasses.replace(mended(checkpoint, batch), version=Journal(checkpoint).version())

    commands.command_of_batch = running.command_of_batch = command_of_batch
    from . import hosted_process

    hosted_process.command_of_batch = command_of_batch


def _all_served() -> None:
    from upstream.queries.hosting import commands

    mended = commands._command
    commands._command = lambda *given: dataclasses.replace(mended(*given), served=None)


def _relation_of_now() -> None:
    from upstream.operators.tables.reading import Version, pinned_table
    from upstream.queries.hosting import stored_rows

    mended = stored_rows.rows_at

    def rows_at(location: str, options: Any, schema: Any, version: Version, hint: str) -> Any:
        del version
        return mended(location, options, schema, pinned_table(location, {})[0], hint)

    stored_rows.rows_at = rows_at


def _deleted_again() -> None:
    from upstream.queries.hosting import dropping

    mended = dropping.delete_result
    dropping.delete_result = lambda *given: mended(*given[:3], 1 << 60, *given[4:])


def _never_deleted() -> None:
    from upstream.queries.hosting.dropping import DroppedTables

    DroppedTables.delete = _nothing  # type: ignore[method-assign]


def _waits_forgotten() -> None:
    from upstream.queries.hosting.deferring import Deferred

    Deferred.to_json = _no_stamps  # type: ignore[method-assign]


def _state_of_nobody() -> None:
    from upstream.queries.hosting.evaluating import Evaluations

    Evaluations.keep = _nothing  # type: ignore[method-assign]


def _tail_read_again() -> None:
    from upstream.datasource.connectors.kafka.positions import Positions

    mended = Positions._continued

    def continued(self: Positions, position: Any, *given: Any) -> dict[str, Any]:
        state = mended(self, position, *given)
        if state.get("cut"):
            state |= {"at": state["at"] | self._cluster.begins(state["cut"]), "lost": position["lost"], "cut": []}
        return state

    Positions._continued = continued  # type: ignore[method-assign]


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


def _nothing_taken_back() -> None:
    from upstream.operators.joins.pairs import Pairs

    Pairs.take_back = _nothing  # type: ignore[method-assign]


def _leaves_as_found() -> None:
    from upstream.operators.joins.release.ordered_release import OrderedRelease

    OrderedRelease.leave = lambda *given: given[1]  # type: ignore[method-assign]


def _sure_without_partner() -> None:
    from upstream.operators.joins.shard import JoinShard

    JoinShard._or_unsure = lambda *given: given[-1]  # type: ignore[method-assign]


def _table_of_now() -> None:
    from upstream.operators.tables import build
    from upstream.operators.tables.reading import latest_version

    build.version_of_batch = lambda *given: latest_version(given[-1], {})  # type: ignore[assignment]


DEFECTS: dict[str, Defect] = {
    "restored-checkpoint": Defect(
        "A checkpoint restored from a backup: the sink takes new rows for a repeat of batches that the table has.",
        "restore",
        _restored_checkpoint,
    ),
    "second-write": Defect(
        "Two writes to one table in one `foreachBatch` have one name: the second one vanishes.",
        "two_writes",
        _second_write,
    ),
    "lazy-windows": Defect(
        'Windows over windows with `output="latest"` leave out those that close together: sums depend on the batches.',
        "over",
        _lazy_windows,
    ),
    "feed-without-bound": Defect(
        "A feed with rows and no bound yet holds nobody back: windows close without it, and its next rows are late.",
        "windows",
        _feed_without_bound,
        19,
    ),
    "clock-beyond-rows": Defect(
        "`progress=heartbeat` under a limit promises the clock beyond rows that wait.", "heartbeat", _clock_beyond_rows
    ),
    "open-end": Defect(
        "The end of a feed closes no window: its last bound holds back its own last windows and all other feeds.",
        "ends",
        _open_end,
    ),
    "bound-before-rows": Defect(
        "A join drops rows by a batch's punctuation before they have met the batch's rows: pairs are missing.",
        "joins",
        _bound_before_rows,
    ),
    "nothing-taken-back": Defect(
        "A row that was given early without a partner stays in the table when it meets one.",
        "early_joins",
        _nothing_taken_back,
    ),
    "leaves-as-found": Defect(
        "Results of a join in the order of time leave as they are found.", "ordered_joins", _leaves_as_found
    ),
    "sure-without-partner": Defect(
        "A row whose partner was dropped at the limit of the state is given as one without a partner.",
        "limited_joins",
        _sure_without_partner,
    ),
    "table-of-now": Defect(
        "A batch that runs again joins with the table as it is by then.", "table_joins", _table_of_now, 31
    ),
    "forgotten-tombstone": Defect(
        "Hosted queries take no notice of deletions: deleted keys stay in their results.",
        "hosted",
        _forgotten_tombstone,
        5,
    ),
    "nothing-begins-anew": Defect(
        "A query that is altered or activated again finds the rows of its former incarnation in its table.",
        "hosted",
        _nothing_begins_anew,
        76,
    ),
    "batch-twice": Defect(
        "A batch that runs again is committed again to the tables of hosted queries that have it.",
        "hosted",
        _batch_twice,
    ),
    "registry-of-now": Defect(
        "A batch that runs again has the queries that are registered by then.", "hosted", _registry_of_now
    ),
    "all-served": Defect("A batch puts out all results, whatever its offset says.", "hosted", _all_served, 4),
    "relation-of-now": Defect(
        "A query that begins reads a stored relation as its table is by then, and not at the version of the registry.",
        "hosted",
        _relation_of_now,
        4,
    ),
    "deleted-again": Defect(
        "A process that starts deletes the table of a query that was dropped, though a later one has made it.",
        "hosted",
        _deleted_again,
        27,
    ),
    "never-deleted": Defect(
        "The table of a query that was dropped with it stays, and a later one finds it.", "hosted", _never_deleted, 4
    ),
    "waits-forgotten": Defect(
        "Results that wait for a later batch are forgotten with the process.", "hosted", _waits_forgotten, 4
    ),
    "state-of-nobody": Defect(
        "The shards keep the state of queries that are gone, and a query that comes again finds it.",
        "hosted",
        _state_of_nobody,
    ),
    "tail-read-again": Defect(
        "A partition whose log lost its tail is read again from its beginning, and nothing is counted as lost.",
        "cut",
        _tail_read_again,
    ),
}
