"""``/api/v1/tables``: the watched tables, the worst first, each with its state and its staleness now."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from ..conf.errors import UpstreamError
from ..sink.figures.waits import has_ended, laggard_among
from .condition import APART_US, TableCondition, sentence, table_condition, unreadable_text
from .watch import readable

if TYPE_CHECKING:
    from ..sink.figures.freshness import JournaledBatch
    from ..sink.figures.waits import Laggard
    from .watch import Watch, WatchedTable

__all__ = ["TableList"]

_WORST_FIRST = ("failed", "unreadable", "late", "overloaded", "running", "empty", "ended", "unread")
# A table is judged again after this. With thousands of tables, so much of a request's time goes to judging, the longest
# unjudged first; more goes to those that were never judged.
_AGAIN_S, _JUDGING_S, _FIRST_S = 0.9, 0.1, 0.4
_POINTS = 40


class _Judgement(NamedTuple):
    version: int
    at_s: float
    figures: dict[str, Any]


UNREAD = "unread"
"""The state of a table that has not been read yet."""
_NO_JUDGEMENT = _Judgement(-2, 0.0, {"state": UNREAD})


class TableList:
    """The rows of the list. A row is judged once for all browsers."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._judged: dict[str, _Judgement] = {}
        self._lock = threading.Lock()

    def answer(self, now_us: int, words: str = "", limit: int = 200) -> dict[str, Any]:
        """Return the worst rows whose names have all of some words, the number of such rows, and all rows by state."""
        rows = self._rows(now_us)
        wanted = words.lower().split()
        matching = [row for row in rows if all(word in row["name"].lower() for word in wanted)]
        return {
            "now_us": now_us,
            "tables": sorted(matching, key=_badness)[:limit],
            "matching": len(matching),
            "total": len(rows),
            "states": dict(sorted(Counter(row["state"] for row in rows).items(), key=lambda each: _rank(each[0]))),
        }

    def names(self) -> list[dict[str, Any]]:
        """Return the tables as they were found, without figures."""
        return [_identity(table) for table in self._watch.tables()]

    def _rows(self, now_us: int) -> list[dict[str, Any]]:
        with self._lock:
            tables = self._watch.tables()
            known = {table.name: self._judged.get(table.name, _NO_JUDGEMENT) for table in tables}
            begun_s, journals = time.monotonic(), dict[str, "JournaledBatch | None"]()
            for table in sorted(tables, key=lambda each: known[each.name].at_s):
                before = known[table.name]
                if begun_s - before.at_s < _AGAIN_S and before.version == table.version:
                    continue
                spent_s = time.monotonic() - begun_s
                if spent_s > (_FIRST_S if before is _NO_JUDGEMENT else _JUDGING_S):
                    continue
                known[table.name] = _Judgement(table.version, begun_s, _figures(table, now_us, before, journals))
            self._judged = known
            rows = [{**_identity(table), **known[table.name].figures} for table in tables]
            for place, why in self._watch.broken.items():
                name = readable(place).rstrip("/").rpartition("/")[2]
                rows.append(
                    {"name": name, "location": place, "version": None, "state": "unreadable", "why": sentence(why)}
                )
            return rows


def _identity(table: WatchedTable) -> dict[str, Any]:
    return {"name": table.name, "location": table.location, "version": table.version}


def _badness(row: dict[str, Any]) -> tuple[int, int, str]:
    """Return a sort key. Staleness counts by its order of magnitude, so that rows seldom change places."""
    now = row.get("staleness_now")
    return _rank(row["state"]), 0 if now is None else -int(math.log2(max(now["mean"], 1)) / 2), row["name"]


def _rank(state: str) -> int:
    return _WORST_FIRST.index(state)


def _figures(
    table: WatchedTable, now_us: int, before: _Judgement, journals: dict[str, JournaledBatch | None]
) -> dict[str, Any]:
    """Return the figures of a table; if they cannot be read, the reason."""
    if table.version < 0 and not table.error:
        return {"state": UNREAD}
    try:
        commits = [summary for _, summary in table.commits]
        slow = laggard_among(commits, now_us) if commits else None
        behind_us = 0 if slow is None or not slow.micros else APART_US if slow.behind is None else slow.behind
        condition = table_condition(table, now_us, behind_us=behind_us, journals=journals)
    except (OSError, ValueError, UpstreamError) as error:
        return {"state": "unreadable", "why": sentence(table.folder.masked(error))}
    found: dict[str, Any] = {"state": condition.state, "why": _why(table, condition, slow)}
    if condition.freshness is None:
        return found
    last = commits[-1]
    chart = before.figures.get("chart") if before.version == table.version else None
    return {
        **found,
        **condition.freshness.to_json(),
        "target": condition.freshness.target,
        "complete_up_to": last.low_watermark,
        "all_ended": has_ended(last),
        "committed_at_us": last.committed_at_us,
        "chart": _chart(table) if chart is None else chart,
    }


def _why(table: WatchedTable, condition: TableCondition, slow: Laggard | None) -> str:
    """Return the reason for a bad state in a sentence; empty for a good one."""
    fresh, state = condition.freshness, condition.state
    lost = sentence(condition.loss) if state == "failed" else ""
    batch = "" if fresh is None or not fresh.batch_text else sentence(fresh.batch_text)
    incomplete = "" if slow is None or state != "late" else sentence(f"completeness {slow.reason}")
    return unreadable_text(table) or lost or batch or incomplete


def _chart(table: WatchedTable) -> list[list[float]]:
    """Return the last points of the history: the time in seconds, and the 99th percentile of staleness."""
    return [[each.at_us / 1e6, round(each.p99_s, 3)] for each in table.points[-_POINTS:] if each.p99_s is not None]
