"""The pages' figures of a table: its verdict, history, ages, input partitions, and largest parts."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..conf.errors import OptionError, UpstreamError
from ..conf.units import format_duration_us
from ..core.feedback.ages import Ages
from ..core.feedback.checkpoint_layout import SparkApplication
from ..core.feedback.reports import REPORTS, read_queues, read_reports
from ..delta_format.latest_table import BUCKET, NOTHING_YET
from ..operators.describe import FeedState, Place, live_places, source_feeds
from ..sink.figures.dead_letters import letter_folders, shown_letters
from ..sink.figures.summary import complete_up_to_us, run_figures
from ..sink.figures.waits import has_ended
from ..storage.folder import TableFolder
from .condition import APART_US, recent_commits, sentence, table_condition, unreadable_text
from .plan_view import wait_of_table
from .prediction import budget_advice

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from ..sink.figures.summary import CommitSummary
    from ..sink.figures.waits import OldestWait
    from ..storage.lease import Lease
    from .bench import Bench
    from .condition import TableCondition
    from .watch import Point, WatchedTable

__all__ = ["feeds", "heatmap", "overview", "routes", "shards", "stalest", "summaries"]

_POINTS, _MOST_POINTS = 600, 4_000
_COLUMNS = 160
_MOST_FEEDS = 500
_MOST_SHARDS = 200
_PER_OCTAVE = 8
_MOST_ROWS = 56
_OPERATORS = ("feeds", "windows", "reorder", "joins", "latest")


def overview(table: WatchedTable, now_us: int) -> dict[str, Any]:
    """Return a table's state, the verdict in a sentence, and the figures behind it."""
    last = table.last
    held = None if last is None else _held_up(table, last, now_us)
    condition = table_condition(table, now_us, behind_us=0 if held is None else held.behind_us)
    state, fresh = condition.state, condition.freshness
    found: dict[str, Any] = {
        "table": table.name,
        "location": table.location,
        "checkpoint": table.checkpoint,
        "version": table.version,
        "now_us": now_us,
        "writer": condition.writer,
        "spark": spark_pages(table, condition.lease, now_us),
    }
    commits = [summary for _, summary in table.commits]
    if last is None or fresh is None or not commits:
        verdict = unreadable_text(table) or "No query has committed to this table yet."
        return {**found, "state": state, "verdict": verdict, "commit": None}
    mine = [each for each in commits if each.query_id == last.query_id]
    recent = recent_commits(commits)
    wait = None
    if state in {"running", "late", "overloaded"} and "/" not in last.query_id:  # the id of a hosted query has one
        wait = wait_of_table(table, None, now_us, runs=True).wait
    judged = [each.target_met for each in mine if each.target_met is not None]
    span_s = (last.committed_at_us - recent[0].committed_at_us) / 1e6
    complete_us = complete_up_to_us(last.low_watermark)
    return {
        **found,
        "state": state,
        "verdict": unreadable_text(table) or _verdict(condition, last, held, wait),
        "advice": budget_advice(table) if state == "overloaded" else "",
        "waits_for": None if held is None else held.feed,
        "commit": {"version": table.commits[-1][0], **last.to_json(), "ages": None},
        "since_commit_s": fresh.since_commit_us / 1e6,
        "staleness": None if last.staleness is None else vars(last.staleness),
        "letters": shown_letters(letter_folders(table.location, table.checkpoint, table.storage)).to_json(),
        **fresh.to_json(),
        "complete_up_to": last.low_watermark,
        "all_ended": has_ended(last),
        "behind_s": None if complete_us is None else (now_us - complete_us) / 1e6,
        "target_share": sum(judged) / len(judged) if judged else None,
        "rows_per_s": sum(each.updates for each in recent[1:]) / span_s if span_s > 0 else None,
        "applied_per_s": sum(each.applied for each in recent[1:]) / span_s if span_s > 0 else None,
        "superseded_share": _share(sum(each.superseded for each in recent), sum(each.updates for each in recent)),
    }


def spark_pages(table: WatchedTable, lease: Lease | None, now_us: int) -> str | None:
    """Return the address of Spark's UI while the process of that UI holds the lease; else None."""
    if table.checkpoint is None or lease is None or lease.has_ended(now_us):
        return None
    found = SparkApplication.read(TableFolder(table.checkpoint, table.storage))
    return found.pages if found is not None and lease.process in found.processes else None


@dataclasses.dataclass(frozen=True)
class HeldUp:
    """The input partition that holds the low-watermark back."""

    feed: str
    behind_us: int
    silent_us: int | None  # since its last row arrived; None if unknown

    def __str__(self) -> str:
        short = self.feed.rstrip("/").rpartition("/")[2] or self.feed
        if self.silent_us is not None and self.silent_us >= APART_US:
            return f"waits for {short}, silent for {format_duration_us(self.silent_us)}"
        return f"waits for {short}, {format_duration_us(self.behind_us)} behind the others"


def _held_up(table: WatchedTable, last: CommitSummary, now_us: int) -> HeldUp | None:
    for place in _lanes(table, last, now_us):
        first = place["lanes"][0]  # one that holds others back comes first
        if first["holds"]:
            behind_s, silent_s = first["behind_s"], first["silent_s"]
            silent_us = None if silent_s is None else int(silent_s * 1e6)
            return HeldUp(first["feed"], APART_US if behind_s is None else int(behind_s * 1e6), silent_us)
    return None


def _verdict(condition: TableCondition, last: CommitSummary, held: HeldUp | None, wait: OldestWait | None) -> str:
    """Return the reason for staleness in a sentence, and the one for an old low-watermark in another."""
    state, fresh = condition.state, condition.freshness
    assert fresh is not None
    ago = format_duration_us(fresh.since_commit_us)
    batch = f" {sentence(fresh.batch_text)}" if fresh.batch_text else ""
    if state == "failed":
        return f"No commit for {ago}: {condition.loss}, and no other has taken its query over.{batch}"
    if state == "ended":
        if has_ended(last):
            return f"Complete: all input partitions have ended. The last commit was {ago} ago."
        return f"No query writes this table. The last commit was {ago} ago.{batch}"
    facts = [fresh.stale_text, fresh.batch_text]
    if state == "overloaded":
        facts.append(f"{condition.arrives:.1f} times as many rows arrive as are processed")
    if wait is not None and wait.kind != "nothing" and (state == "overloaded" or (wait.age_us or 0) >= APART_US):
        facts.append(wait.reason)
    facts.append(fresh.target_text)
    found = sentence("; ".join(each for each in facts if each))
    if held is not None and held.behind_us >= APART_US and (wait is None or wait.kind != "partition"):
        found += f" Completeness {held}."
    return found


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def summaries(table: WatchedTable, since_us: int, until_us: int, most: int, latest: int = 0) -> dict[str, Any]:
    """Return the history between two times in at most `most` points, as columns, and the `latest` commits whole.

    Of commits that share a point, staleness, backlog and batch time are the greatest, and counts are rates over the
    time since the point before.
    """
    points = [each for each in table.points if since_us <= each.at_us <= until_us]
    groups = _groups([each.at_us for each in points], most)
    before_us: int | None = None
    rows: list[dict[str, Any]] = []
    for start, stop in groups:
        part = points[start:stop]
        ages = [each.ages for each in part]
        last = part[-1]
        span_s = 0.0 if before_us is None else (last.at_us - before_us) / 1e6
        before_us = last.at_us
        judged = sum(each.judged for each in part)
        rows.append(
            {
                "at_s": last.at_us / 1e6,
                "version": last.version,
                "commits": sum(each.commits for each in part),
                "p50_s": _greatest(each.p50_s for each in part),
                "p99_s": _greatest(each.p99_s for each in part),
                "max_s": _greatest(each.max_s if each.count else None for each in ages),
                "mean_s": _share(sum(each.total_s for each in ages), sum(each.count for each in ages)),
                **{
                    f"{name}_per_s": sum(getattr(each, name) for each in part) / span_s if span_s > 0 else None
                    for name in ("updates", "applied", "superseded")
                },
                "keys": last.keys,
                "pending": _greatest(each.pending for each in part),
                "oldest_s": _greatest(each.oldest_s for each in part),
                "behind_s": _greatest(
                    None if each.complete_up_to_us is None else (each.at_us - each.complete_up_to_us) / 1e6
                    for each in part
                ),
                "batch_s": _greatest(each.batch_s for each in part),
                "target_met": sum(each.met for each in part) / judged if judged else None,
            }
        )
    names = list(rows[0]) if rows else ["at_s"]
    return {
        "columns": {name: [row[name] for row in rows] for name in names},
        "commits": sum(each.commits for each in points),
        "first_us": table.points[0].at_us if table.points else None,
        "target": None if table.last is None else table.last.target,
        "latest": [
            {"version": version, **summary.to_json(), "ages": None}
            for version, summary in (table.commits[-latest:] if latest else ())
        ],
    }


def _greatest(values: Any) -> Any:
    return max((each for each in values if each is not None), default=None)


def _groups(at_us: Sequence[int], most: int) -> list[tuple[int, int]]:
    """Return the ranges of points that share one of `most` equal stretches of time."""
    if len(at_us) <= most:
        return [(number, number + 1) for number in range(len(at_us))]
    at = np.array(at_us)
    stretch = ((at - at[0]) * most // max(int(at[-1] - at[0]) + 1, 1)).astype(np.int64)
    starts = np.flatnonzero(np.diff(stretch, prepend=-1)).tolist()
    return list(zip(starts, [*starts[1:], len(at_us)], strict=True))


def heatmap(table: WatchedTable, since_us: int, until_us: int, columns: int) -> dict[str, Any]:
    """Return the applied keys by time and age, and the share of them above each age.

    `times` (epoch seconds) and `ages` (seconds) are edges; `counts` has a list for each stretch of time, youngest
    first. `above` has a pair for each age: the age, and the share of keys that were older.
    """
    points = [(each.at_us, each.ages) for each in table.points if since_us <= each.at_us <= until_us]
    points = [(at_us, ages) for at_us, ages in points if ages.count]
    if not points:
        return {"times": [], "ages": [], "counts": [], "above": []}
    first, last = points[0][0], points[-1][0]
    columns = max(min(columns, len(points)), 1)
    counts: list[dict[int, int]] = [{} for _ in range(columns)]
    for at_us, ages in points:
        held = counts[min((at_us - first) * columns // max(last - first, 1), columns - 1)]
        for number, count in ages.bins.items():
            held[number] = held.get(number, 0) + count
    numbers = [number for each in counts for number in each]
    low, high = min(numbers), max(numbers)
    merged = -(-(high - low + 1) // _MOST_ROWS)
    rows = (high - low) // merged + 1
    table_of = np.zeros((columns, rows), dtype=np.int64)
    for at, each in enumerate(counts):
        for number, count in each.items():
            table_of[at, (number - low) // merged] += count
    total = Ages.together(ages for _, ages in points)
    above, left = [], total.count
    for number, count in total.bins.items():
        left -= count
        above.append([min(_upper_s(number), total.max_s), left / total.count])
    return {
        "times": np.linspace(first / 1e6, max(last, first + 1_000_000) / 1e6, columns + 1).tolist(),
        "ages": [_upper_s(low - 1 + merged * row) if low - 1 + merged * row >= 0 else 0.0 for row in range(rows + 1)],
        "counts": table_of.tolist(),
        "above": above,
    }


def _upper_s(number: int) -> float:
    """Return the greatest age in a bin of :class:`Ages`, in seconds."""
    return 2 ** (number / _PER_OCTAVE) / 1e3


def feeds(table: WatchedTable, now_us: int) -> dict[str, Any]:
    """Return the places of a query where input partitions meet, each with a lane for every partition.

    Lanes that hold the others back come first.
    """
    last = table.last
    return {"now_us": now_us, "places": [] if last is None else _lanes(table, last, now_us)}


def _lanes(table: WatchedTable, last: CommitSummary, now_us: int) -> list[dict[str, Any]]:
    micros = not isinstance(last.low_watermark, (int, float))
    places: list[Place] = []
    if table.checkpoint is not None:
        with contextlib.suppress(OSError, ValueError, UpstreamError):  # it is being written, or of another version
            places = [dataclasses.replace(each, micros=micros) for each in source_feeds(table.checkpoint)]
            places += live_places(_folders(table.checkpoint, table.storage), micros=micros)
    if not any(place.feeds for place in places):
        states = [_state_of(feed, bound) for feed, bound in last.low_watermarks.items()]
        places = [Place("the last commit", states, micros=all(isinstance(each, str) for each in _bounds(last)))]
    return [_place(place, now_us) for place in places if place.feeds]


def _bounds(last: CommitSummary) -> list[Any]:
    return [bound for bound in last.low_watermarks.values() if bound is not None]


def _state_of(feed: str, bound: Any) -> FeedState:
    if bound is None or bound == NOTHING_YET:
        return FeedState(feed, None, ended=bound is None)
    return FeedState(feed, complete_up_to_us(bound) if isinstance(bound, str) else int(bound))


def _folders(checkpoint: str, storage: Mapping[str, str]) -> list[str]:
    folder = TableFolder(checkpoint, storage)
    found: list[str] = []
    for kind in _OPERATORS:
        below = f"upstream-{kind}"
        with contextlib.suppress(NotADirectoryError):
            found += sorted(f"{checkpoint}/{below}/{each.name}" for each in folder.listing(below) if each.is_folder)
    return found


def _place(place: Place, now_us: int) -> dict[str, Any]:
    behind = place.behind
    live = [each for each in place.feeds if not each.ended]
    none_yet = [each for each in live if each.bound is None]
    least = min(behind.values(), default=0), max(behind.values(), default=0)
    lanes: list[dict[str, Any]] = []
    for each in place.feeds:
        far = behind.get(each.feed)
        holds = not each.ended and len(live) > 1 and (each.bound is None or (not none_yet and far == least[1] > 0))
        lanes.append(
            {
                "feed": each.feed,
                "complete_up_to_us": each.bound if place.micros else None,
                "complete_up_to": None if place.micros else each.bound,
                "behind_s": far / 1e6 if far is not None and place.micros else None,
                "behind": far,
                "silent_s": None if each.heard_us is None else max(now_us - each.heard_us, 0) / 1e6,
                "ended": each.ended,
                "idle": each.idle,
                "holds": holds,
                "rows": each.rows,
                "late": each.late,
                "suspects": each.suspects,
                "malformed": each.malformed,
            }
        )
    lanes.sort(key=lambda lane: (not lane["holds"], lane["ended"], -(lane["behind"] or 0), lane["feed"]))
    return {
        "name": place.name,
        "partitions": len(lanes),
        "held": place.held,
        "counts": dict(place.counts),
        "most_behind": least[1],
        "micros": place.micros,
        "lanes": lanes[:_MOST_FEEDS],
    }


def stalest(table: WatchedTable, count: int, by: Literal["age", "updates"] = "age") -> dict[str, Any]:
    """Return the stalest or the hottest keys that wait in the query's queue, if the queue reports them."""
    from ..operators.queue.shard import keys_in_reports, stalest_keys
    from .table_view import json_rows

    if table.checkpoint is None:
        return {"columns": [], "rows": [], "why": "The checkpoint of this table's query is not here."}
    try:
        most = keys_in_reports(table.checkpoint)[1]
        if most:
            return json_rows(stalest_keys(table.checkpoint, min(count, most), by=by))
        why = "To see them, restart the query with .queue(stalest_keys=20)."
    except OptionError as error:
        why = f"{error.problem}."
    return {"columns": [], "rows": [], "why": why}


def shards(table: WatchedTable) -> dict[str, Any]:
    """Return the largest buckets of the table, and the shards of queues and operators with the most rows."""
    from .table_view import table_files

    files = table_files(table)
    queues: list[dict[str, Any]] = []
    operators: list[dict[str, Any]] = []
    if table.checkpoint is not None:
        with contextlib.suppress(OSError, ValueError, UpstreamError):
            for number, reports in enumerate(read_queues(TableFolder(table.checkpoint, table.storage))):
                queues += [
                    {
                        "queue": number,
                        "shard": each.shard,
                        "waiting": each.waiting,
                        "arrived": each.arrived,
                        "applied": each.applied,
                        "superseded": each.superseded,
                        "oldest_us": each.oldest_us,
                        "state_bytes": each.state_bytes,
                        "locations": each.allocated,
                    }
                    for each in reports
                ]
            for folder in _folders(table.checkpoint, table.storage):
                kind, name = folder.rsplit("/", 2)[-2:]
                report = REPORTS.get(kind.removeprefix("upstream-"))  # pyright: ignore[reportArgumentType]
                if report is not None:
                    operators += [
                        {
                            "operator": f"{report.place} {name}",
                            "shard": each.shard,
                            "kept": each.kept,
                            "due": each.due,
                            "state_bytes": each.state_bytes,
                        }
                        for each in read_reports(folder, report)
                    ]
    return {
        "buckets": sorted(files["buckets"], key=lambda each: -(each["rows"] or 0))[:_MOST_SHARDS],
        "bucket_column": BUCKET,
        "queues": sorted(queues, key=lambda each: -each["waiting"])[:_MOST_SHARDS],
        "operators": sorted(operators, key=lambda each: -each["kept"])[:_MOST_SHARDS],
    }


def run(table: WatchedTable) -> dict[str, Any] | None:
    """Return the figures of the latest commits together, as :meth:`~upstream.LatestTable.staleness` does."""
    found = run_figures([summary for _, summary in table.commits])
    return None if found is None else dataclasses.asdict(found)


def _span(request: Request, points: Sequence[Point]) -> tuple[int, int]:
    """Return the requested times in microseconds; all of the history unless given."""

    def at(name: str, default: int) -> int:
        text = request.query_params.get(name, "")
        if not text:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise OptionError(f"{name}={text[:40]!r}", expected="microseconds since the epoch")
        return int(text)

    return at("from", 0), at("to", points[-1].at_us if points else 0)


def routes(bench: Bench) -> list[Route]:
    """Return the routes of the pages' figures."""
    from .bench import count_of

    def table(request: Request) -> WatchedTable:
        return bench.watch.shown(request.query_params.get("table"))

    def history(request: Request) -> dict[str, Any]:
        found = table(request)
        most = max(count_of(request, "points", _POINTS, _MOST_POINTS), 2)
        return summaries(found, *_span(request, found.points), most, count_of(request, "latest", 0, 200))

    def ages(request: Request) -> dict[str, Any]:
        found = table(request)
        return heatmap(found, *_span(request, found.points), max(count_of(request, "columns", _COLUMNS, 1_000), 1))

    def top(request: Request) -> dict[str, Any]:
        by = "updates" if request.query_params.get("by") == "updates" else "age"
        return stalest(table(request), max(count_of(request, "count", 20, 1_000), 1), by)

    bench.events.verdict = lambda found: overview(found, bench.watch.clock_us())
    return [
        bench.endpoint("/api/v1/overview", lambda request: overview(table(request), bench.watch.clock_us())),
        bench.endpoint("/api/v1/summaries", history),
        bench.endpoint("/api/v1/heatmap", ages),
        bench.endpoint("/api/v1/feeds", lambda request: feeds(table(request), bench.watch.clock_us())),
        bench.endpoint("/api/v1/stalest", top, apart=True),
        bench.endpoint("/api/v1/shards", lambda request: shards(table(request)), apart=True),
        bench.endpoint("/api/v1/run", lambda request: run(table(request))),
    ]
