"""Defects that the product had, or could have, each put in by a patch of the function that prevents it: the simulation
must find every one. tests/README.md says what each of them does.
"""

import contextlib
import dataclasses
import importlib
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import polars as pl

from upstream.conf.errors import UpstreamError

Patch = Callable[[Any], Any]
"""From what is right to what is wrong."""


@dataclasses.dataclass(frozen=True)
class Defect:
    """Which scenarios find it, from the first seed to try, and what to put in which places, as ``module:name``."""

    profile: str
    seed: int
    patch: Patch
    places: tuple[str, ...]

    def put_back(self) -> None:
        """Patch the product of this process."""
        put_back(self.patch, self.places)


def put_back(patch: Patch, places: tuple[str, ...]) -> None:
    """Patch some places of this process."""
    for place in places:
        module, _, name = place.partition(":")
        path, _, last = name.rpartition(".")
        found = importlib.import_module(module if module.startswith("tests.") else f"upstream.{module}")
        owner = attrgetter(path)(found) if path else found
        setattr(owner, last, patch(getattr(owner, last)))


def _gives(value: Any) -> Patch:
    return lambda _: lambda *_: value


def _repeats(_: Any) -> Any:
    def repeats(identity: Any, recorded: int | None, _: Any) -> bool:
        return recorded is not None and recorded >= identity.number

    return repeats


def _one_name(_: Any) -> Any:
    return lambda *_: contextlib.nullcontext(0)


def _knows_no_rows(mended: Any) -> Any:
    return lambda *_: None if mended.__name__ == "_oldest_us" else {}


def _drops_before_rows(mended: Any) -> Any:
    def arrived(shard: Any, side: int, frames: Any) -> Any:
        found = mended(shard, side, frames)
        shard._progress.hear(side, found.punctuation)
        other = 1 - side
        shard._kept[other].drop_below(shard._plan.band.kept_from(other, shard._progress.bound(side)))
        return found

    return arrived


def _newest_version(_: Any) -> Any:
    from upstream.operators.tables.lookup import latest_version

    return lambda *given: latest_version(given[-1], {})


def _from_the_beginning(mended: Any) -> Any:
    def continued(positions: Any, position: Any, *given: Any) -> dict[str, Any]:
        state = mended(positions, position, *given)
        if state.get("cut"):
            state |= {"at": state["at"] | positions._cluster.begins(state["cut"]), "lost": position["lost"], "cut": []}
        return state

    return continued


def _no_tombstones(mended: Any) -> Any:
    import polars as pl

    return lambda *given: mended(*given).filter(~pl.col("__tombstone"))


def _goes_on(mended: Any) -> Any:
    def start_of(table: Any, known: Any, writer: str, last: Any) -> Any:
        found = mended(table, known, writer, last)
        return found._replace(begins=found.begins and (known.version < 0 or bool(found.actions)))

    return start_of


def _version_of_now(mended: Any) -> Any:
    from upstream.hosting.journal import Journal

    return lambda at, batch: dataclasses.replace(mended(at, batch), version=Journal(at).version())


def _rows_of_now(mended: Any) -> Any:
    from upstream.operators.tables.lookup import pinned_table

    return lambda at, options, schema, _, hint: mended(at, options, schema, pinned_table(at, {})[0], hint)


_PROGRESS, _JOIN = "core.watermark.policies:FeedProgress", "operators.joins.shard:JoinShard"
_PLANNER, _HOSTING = "datasource.planner:BatchPlanner", "hosting"
_COMMANDS = tuple(
    f"{module}:command_of_batch"
    for module in (f"{_HOSTING}.messages", f"{_HOSTING}.job", "tests.simulation.hosted_process")
)

DEFECTS = {
    "restored-checkpoint": Defect("restore", 0, _repeats, ("sink.commit.batch_identity:BatchIdentity.repeats",)),
    "second-write": Defect("two_writes", 0, _one_name, ("sink.commit.batch_name:Calls.call",)),
    "lazy-windows": Defect(
        "over", 0, lambda mended: lambda plan: None if plan.emit == "lazy" else mended(plan),
        ("operators.windows.shards.plan:left_out_by_windows",),
    ),
    "feed-without-bound": Defect("windows", 19, _gives(None), (f"{_PROGRESS}.begin",)),
    "clock-beyond-rows": Defect("arrival", 0, _knows_no_rows, (f"{_PLANNER}._oldest_us", f"{_PLANNER}._entered")),
    "open-end": Defect("ends", 0, _gives(None), (f"{_PROGRESS}.close",)),
    "bound-before-rows": Defect("joins", 0, _drops_before_rows, (f"{_JOIN}._arrived",)),
    "nothing-taken-back": Defect("early_joins", 0, _gives(None), ("operators.joins.pairs:Pairs.take_back",)),
    "leaves-as-found": Defect(
        "ordered_joins", 0, lambda _: lambda *given: given[1],
        ("operators.joins.release.ordered_release:ReleaseBuffer.leave",),
    ),
    "sure-without-partner": Defect("limited_joins", 0, lambda _: lambda *given: given[-1], (f"{_JOIN}._or_unsure",)),
    "table-of-now": Defect("table_joins", 31, _newest_version, ("operators.tables.versions:version_of_batch",)),
    "tail-read-again": Defect(
        "cut", 0, _from_the_beginning, ("datasource.connectors.kafka.positions:Positions._continued",)
    ),
    "forgotten-tombstone": Defect("hosted", 5, _no_tombstones, (f"{_HOSTING}.stages:rows_of",)),
    "nothing-begins-anew": Defect("hosted", 76, _goes_on, ("sink.results.result_tables:start_of",)),
    "batch-twice": Defect("hosted", 0, _gives(False), ("sink.commit.batch_identity:BatchIdentity.is_in",)),
    "registry-of-now": Defect("hosted", 0, _version_of_now, _COMMANDS),
    "all-served": Defect(
        "hosted", 4, lambda mended: lambda *given: dataclasses.replace(mended(*given), served=None),
        (f"{_HOSTING}.messages:_command",),
    ),
    "relation-of-now": Defect("hosted", 4, _rows_of_now, (f"{_HOSTING}.scan:rows_at",)),
    "deleted-again": Defect(
        "hosted", 27, lambda mended: lambda *given: mended(*given[:3], 1 << 60, *given[4:]),
        (f"{_HOSTING}.job:delete_table",),
    ),
    "never-deleted": Defect("hosted", 4, _gives(None), (f"{_HOSTING}.job:DroppedTables.delete",)),
    "waits-forgotten": Defect("hosted", 4, _gives({}), (f"{_HOSTING}.output:DeferredChanges.to_json",)),
    "lag-forgotten": Defect(
        "hosted", 9, lambda mended: lambda owed, most: mended(owed[-1:] if most is None else owed, most),
        ("datasource.lanes:_taken",),
    ),
    "state-of-nobody": Defect("hosted", 0, _gives(None), (f"{_HOSTING}.evaluations:Evaluations.keep",)),
}  # fmt: skip


def _becomes(value: Any) -> Patch:
    return lambda _: value


def _direct(_: Any) -> Any:
    return lambda function: function()


_UNPLANNED = [
    (_gives(None), ("hosting.host_plan:_rehearse",)),
    (
        _becomes((UpstreamError,)),
        tuple(
            f"{module}:FAILURES"
            for module in (
                "hosting.evaluations", "hosting.host_plan", "hosting.output", "hosting.scan", "hosting.stages",
                "operators.relations.evaluation", "operators.relations.slices", "operators.relations.step",
            )
        ),
    ),
]  # fmt: skip


def _any_count(checked: Any) -> Any:
    def count(node: Any, text: Any, what: str, *, least: int = 1) -> int:
        return int(node.name) if node.name.isdigit() else checked(node, text, what, least=least)

    return count


OF_TEXTS: dict[str, tuple[int, list[tuple[Patch, tuple[str, ...]]]]] = {
    # A chain of 700 conditions is one deep tree, and the job plans it on the stack of its caller.
    "deep-chains": (
        1,
        [
            *_UNPLANNED,
            (_becomes(1 << 60), ("expressions.nodes:CHAIN",)),
            (_direct, tuple(f"hosting.{module}:on_deep_stack" for module in ("host_plan", "scan", "stages"))),
        ],
    ),
    # ROWS 10^30 overflows in the job.
    "any-count": (
        6,
        [(_any_count, tuple(f"language.{module}:count" for module in ("over", "select_list", "sources")))],
    ),
    # A column _upstream is there twice when the rows for the table are made.
    "any-name": (5, [(_gives(None), ("language.binder:reserved_name",))]),
    # A jump of event time by a year is one step, with the results at all multiples of a period.
    "any-jump": (
        1423,
        [
            (
                _becomes(1 << 60),
                tuple(f"operators.relations.changes:{name}" for name in ("_MOST", "_MOST_BYTES", "_MOST_STEPS")),
            )
        ],
    ),
    # REPEAT(…, 2000000000) is computed before its size is checked.
    "any-size": (1, [(lambda _: lambda _build, _: pl.lit(value=True), ("expressions.columnar:Builder.fits",))]),
}
"""Defects that a fuzzer of texts finds: the seed from which it does, and the patches."""
