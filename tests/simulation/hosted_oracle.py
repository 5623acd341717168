"""What the tables of hosted queries must hold, by DuckDB over all rows that count; nothing of it is the product's."""

import functools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import duckdb
import pyarrow as pa
from kit import evaluated

from .hosted_rows import STREAMS, Row, Taken

Contents = Counter[tuple[Any, ...]]
Domain = tuple[tuple[str, ...], int]
"""The streams of some queries, and by how much below the low-watermark their rows still count, in µs."""
_MINUTE = 60_000_000
_OWN = [(f"__{name}", pa.int64()) for name in ("time", "seq", "batch")] + [("__deleted", pa.bool_())]
_HOP = r"HOP\((?P<hopped>\w+), t, INTERVAL '(?P<hop>\d+)' MINUTE, INTERVAL '(?P<size>\d+)' MINUTE\)"
_SESSION = r"SESSION\((?P<of>\w+)(?: PARTITION BY (?P<by>\w+))?, \w+, INTERVAL '(?P<gap>\d+)' MINUTE\)"
_WINDOW = re.compile(
    rf"\b(?P<stream>trade|quote|buses) \[(?P<window>[^\]]+)\]|LATEST\((?P<updates>\w+)\)|{_HOP}|{_SESSION}"
)
BEFORE = -(1 << 61)
"""A time before all rows."""


@functools.cache
def _database() -> duckdb.DuckDBPyConnection:
    """A process that forks others must not have it: its threads would not be there."""
    made = duckdb.connect()
    made.execute("SET threads = 1; SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
    made.execute("SET order_by_non_integer_literal = true")
    return made


class Watermarks:
    """How far streams have come, for queries that read some of them together."""

    def __init__(self) -> None:
        self._bounds: dict[str, dict[str, int]] = {name: {} for name in STREAMS}
        self.reached: dict[Domain, int | None] = {}
        self.late: dict[Domain, set[int]] = {}

    def take(self, taken: Taken, wanted: set[Domain]) -> None:
        """Take a batch; rows below what was reached before it are late."""
        before = {domain: self._low(domain) for domain in wanted}
        for domain, low in before.items():
            late = self.late.setdefault(domain, set())
            if low is not None:
                late |= {row.seq for row in taken.rows if row.stream in domain[0] and row.time < low - domain[1]}
        for stream, bounds in taken.bounds.items():
            for feed, bound in bounds.items():
                self._bounds[stream][feed] = max(bound, self._bounds[stream].get(feed, bound))
        # Nobody reads the others: what they had reached is forgotten.
        self.reached = {}
        for domain, passed in before.items():
            low = self._low(domain)
            self.reached[domain] = low if low is None or passed is None else max(low, passed)

    def _low(self, domain: Domain) -> int | None:
        reached = self.reached.get(domain)
        if not all(self._bounds[stream] for stream in domain[0]):
            return reached
        low = min(min(self._bounds[stream].values()) for stream in domain[0])
        return low if reached is None else max(low, reached)


class Answers:
    """Answers over the rows of some domain."""

    def __init__(self, rows: Sequence[Row], late: set[int], stored: Mapping[str, pa.Table] | None = None) -> None:
        for name, table in (stored or {}).items():
            _database().register(name, table)
        self.rows = [row for row in rows if row.seq not in late]
        for name, stream in STREAMS.items():
            own = [row for row in self.rows if row.stream == name]
            schema = pa.schema([*stream.schema, *_OWN])
            cells = zip(*((*row.cells, row.time, row.seq, row.batch, row.deleted) for row in own), strict=True)
            _database().register(f"r_{name}", pa.table([*cells] or [()] * len(schema), schema=schema))

    def at(self, text: str, tau: int, since: int = 0, *, arrival: bool = False) -> Contents:
        """The relation of a query at a time, of the rows that came in a batch or later."""
        sql = _WINDOW.sub(lambda found: _rows(found, tau, since, arrival), text)
        return Counter(tuple(map(plain, row)) for row in _database().execute(sql).fetchall())

    def points(self, text: str, begin: int, end: int) -> list[int]:
        """The times in `[begin, end)` at which the relation of a query can change."""
        found: set[int] = set()
        for each in _WINDOW.finditer(text):
            length, slide = _lengths(each)
            for row in self.rows:
                for time in (row.time, row.time + length):
                    at = -(-(time + bool(each["hop"])) // slide) * slide
                    found.add(at)
                    if each["hop"]:
                        found |= {at + slide * number for number in range(length // slide + 1)}
        return sorted(time for time in found if begin <= time < end)


def plain(value: Any) -> Any:
    """A value that compares with that of another engine; a moment in µs."""
    if isinstance(value, datetime):
        return round(value.timestamp() * 1e6)
    return evaluated.plain(value)


def relation(text: str) -> tuple[str, str]:
    """The relation of a query's text, and what of its changes is asked for: `istream` if nothing else is."""
    found = re.fullmatch(r"(ISTREAM|DSTREAM)\((.*)\)", text)
    return (found[2], found[1].lower()) if found else (text, "istream")


def with_views(text: str, views: Mapping[str, str]) -> str:
    return re.sub(r"\bFROM (v\d)\b", lambda found: f"FROM ({views[found[1]]})", text)


def windows_in(text: str) -> int:
    return len(_WINDOW.findall(text))


def _lengths(found: re.Match[str]) -> tuple[int, int]:
    """A window's length and slide in µs."""
    if found["hop"]:
        return int(found["size"]) * _MINUTE, int(found["hop"]) * _MINUTE
    lengths = re.match(r"RANGE (\d+) MINUTES(?: SLIDE (\d+) MINUTE)?", found["window"] or "")
    if lengths is None:
        return (1, 1) if found["window"] == "NOW" else (0, 1)
    return int(lengths[1]) * _MINUTE, int(lengths[2] or 0) * _MINUTE or 1


def _sessions(rows: str, key: str, gap: int, tau: int) -> str:
    """The rows of each key's sessions that have ended for less than a gap."""
    begins = f"__time - LAG(__time) OVER (PARTITION BY {key} ORDER BY __time) <= {gap}"
    numbered = f"SELECT *, SUM(__new) OVER (PARTITION BY {key} ORDER BY __time) AS __session FROM ({{}})"
    numbered = numbered.format(f"SELECT *, CASE WHEN {begins} THEN 0 ELSE 1 END AS __new FROM ({rows})")
    times = f"MIN(__time) OVER (PARTITION BY {key}, __session) AS __begin, MAX(__time) OVER (PARTITION BY {key}, "
    ended = f"SELECT *, {times}__session) + {gap} AS __end FROM ({numbered})"
    bounds = "make_timestamptz(__begin) AS window_start, make_timestamptz(__end) AS window_end"
    kept = f"SELECT *, {bounds} FROM ({ended}) WHERE __end <= {tau} AND __end > {tau - gap}"
    return f"(SELECT * EXCLUDE (__time, __new, __session, __begin, __end) FROM ({kept}))"


def _rows(found: re.Match[str], tau: int, since: int, arrival: bool) -> str:
    """The rows that are in a window at a time."""
    stream = found["stream"] or found["updates"] or found["hopped"] or found["of"]
    columns = ", ".join(STREAMS[stream].schema.names)
    rows = f"FROM r_{stream} WHERE __batch >= {since}" + ("" if arrival else f" AND __time <= {tau}")
    window = found["window"] or ""
    length, slide = _lengths(found)
    key = next(iter(STREAMS[stream].key), "")
    if found["updates"] or window == f"PARTITION BY {key} ROWS 1":
        newest = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {key} ORDER BY __time DESC, __seq DESC) AS __rank {rows}"
        return f"(SELECT {columns} FROM ({newest}) WHERE __rank = 1 AND NOT __deleted)"
    rows += " AND NOT __deleted"
    if found["gap"]:
        return _sessions(f"SELECT {columns}, __time {rows}", found["by"] or key, int(found["gap"]) * _MINUTE, tau)
    if window.startswith(("ROWS", "PARTITION")):
        parts = re.fullmatch(r"(?:PARTITION BY (\w+) )?ROWS (\d+)(?: SLIDE (\d+))?", window)
        assert parts is not None
        by = f"PARTITION BY {parts[1]} " if parts[1] else ""
        last = f"COUNT(*) OVER ({by}) // {parts[3] or 1} * {parts[3] or 1}"
        numbered = f"SELECT *, {last} - ROW_NUMBER() OVER ({by}ORDER BY __time, __seq) AS __rank {rows}"
        return f"(SELECT {columns} FROM ({numbered}) WHERE __rank BETWEEN 0 AND {parts[2]} - 1)"
    if window.startswith("RANGE UNBOUNDED"):
        slide = int(window.split()[3]) * _MINUTE if "SLIDE" in window else 1
        return f"(SELECT {columns} {rows} AND __time <= {tau // slide * slide})"
    end = tau // slide * slide
    if found["hop"]:
        return f"(SELECT {columns} {rows} AND __time >= {end - length} AND __time < {end})"
    return f"(SELECT {columns} {rows} AND __time <= {end} AND __time > {end - length})"
