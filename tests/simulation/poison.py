"""Texts that are registered to break a job: each is refused at once, or runs beside healthy queries that never differ.

``PYTHONPATH=tests python -m tests.simulation.poison --texts 10000 --seed 1``
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import re
import resource
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from kit.continuous import BUSES, CATALOG, END_US, EPOCH, FORMS, QUOTE, TRADE
from kit.hosting import Tables, Versions, frame, is_behind, scanned
from kit.local_host import LocalHost

from upstream.conf.errors import UpstreamError
from upstream.hosting.host_plan import rehearse
from upstream.hosting.messages import Command
from upstream.hosting.output import result_rows
from upstream.language import bind

from .defects import OF_TEXTS, put_back

HEALTHY = tuple(each for each in FORMS if "Requests" not in each and "Domains" not in each)[:20]
MOST_BYTES = 3 << 30
MOST_ROWS = 1_000_000
"""What a step may give after a jump of event time: rows, and the times that they have."""
_LIBC = ctypes.CDLL(None)  # its heaps keep what is freed: after 700 texts, half of 960 MB
_ON_PURPOSE = {each.__name__ for each in UpstreamError.__subclasses__()}
_TOGETHER = 20
_MOST_BATCHES = 2000
_NAMES = (
    "x",
    "_upstream",
    "__time",
    "__weight",
    "__rows",
    "a.b",
    "a b",
    "",
    "`",
    "é",
    "x" * 300,
    "copy",
    "row_key",
    "px#1",
)
_NUMBERS = ("0", "1", "-1", "2147483648", "9223372036854775807", "1" + "0" * 30, "1e308", "1.5", "0.00001BD")
_UNITS = ("MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "DAY")
_OF_NUMBERS = (
    "(N + N)", "(N - N)", "(N * N)", "(N / N)", "(N % N)", "CAST(N AS INT)", "CAST(T AS BIGINT)",
    "CAST(N AS DECIMAL(38, 10))",
    "CASE WHEN C THEN N ELSE N END", "abs(N)", "power(N, N)", "length(T)", "try_add(N, N)",
    "round(N, 2)", "(- N)", "hash(N)", "(" + " + ".join(["n"] * 400) + ")",
)  # fmt: skip
_OF_TEXTS = (
    "repeat(T, n)", "repeat(T, 2000000000)", "repeat(T, CAST(N AS INT))", "lpad(T, 5, 'é')", "rpad(T, 2000000000, 'x')",
    "(T || T)", f"replace(T, 'a', '{'b' * 99}')", "upper(T)", "space(2147483647)", "CAST(N AS STRING)",
    "substring(T, n, 3)", "(" + " || ".join(["sym"] * 300) + ")",
)  # fmt: skip
_OF_CONDITIONS = (
    "N = N", "N < N", "N <> N", "N <=> N", "NOT N > 0", "N IN (N, NULL, 3)", "T RLIKE '('", "T RLIKE 'a*'",
    "T RLIKE '[^&]'", "T RLIKE '(a|b)+c'", "T LIKE '%a%'", f"n IN ({', '.join(map(str, range(150)))})",
)  # fmt: skip


class Texts:
    """Random texts, many of which are queries."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def query(self) -> str:
        """Return a text."""
        kinds = (
            self._select, self._select, self._group, self._union, self._emit, self._over, self._ranked, self._nearest,
            self._deep,
        )  # fmt: skip
        return self._pick(kinds)()

    def _pick(self, some: Any) -> Any:
        return some[self._rng.randrange(len(some))]

    def _name(self) -> str:
        return (
            f"`{self._pick(_NAMES).replace('`', '``')}`" if self._rng.random() < 0.3 else f"c{self._rng.randrange(9)}"
        )

    def _length(self) -> str:
        number = self._pick(("1", "5", "60", "90000", "1" + "0" * 18))
        return f"{number} {self._pick(_UNITS)}S"

    def _source(self) -> str:
        slide = f" SLIDE {self._length()}" if self._rng.random() < 0.5 else ""
        windows = (
            "[NOW]", "[RANGE UNBOUNDED]", f"[ROWS {self._pick(_NUMBERS)}]", f"[RANGE {self._length()}{slide}]",
            f"[PARTITION BY sym ROWS {self._pick(('1', '3', '1000000000'))}]", "[RANGE 10 MINUTES]",
            f"TABLESAMPLE (50 PERCENT) REPEATABLE ({self._pick(_NUMBERS)}) [NOW]",
        )  # fmt: skip
        if self._rng.random() < 0.2:
            return f"HOP(trade, t, INTERVAL {self._length()[:-1]}, INTERVAL {self._length()[:-1]})"
        return f"trade {self._pick(windows)}"

    def _kept(self) -> str:
        windows = "[RANGE 10 MINUTES]", "[PARTITION BY sym ROWS 3]", "[RANGE 1 MINUTE SLIDE 5 SECONDS]", "[ROWS 100]"
        return self._source() if self._rng.random() < 0.1 else f"trade {self._pick(windows)}"

    def _filled(self, template: str, depth: int) -> str:
        """Put numbers, texts and conditions in the places of N, T and C."""
        rules = {"N": self._number, "T": self._text, "C": self._condition}
        return re.sub(r"\b[NTC]\b", lambda found: rules[found[0]](depth - 1), template)

    def _number(self, depth: int) -> str:
        if depth <= 0:
            return self._pick(("n", "n", "px", *_NUMBERS))
        return self._filled(self._pick(_OF_NUMBERS), depth)

    def _text(self, depth: int) -> str:
        if depth <= 0:
            return self._pick(("sym", "'a'", "''", "'%_['"))
        return self._filled(self._pick(_OF_TEXTS), depth)

    def _condition(self, depth: int) -> str:
        one = self._filled(self._pick(_OF_CONDITIONS), depth)
        return f"({self._pick((' AND ', ' OR ')).join([one] * self._pick((1, 1, 2, 700 if depth == 1 else 3)))})"

    def _select(self) -> str:
        depth = self._rng.randrange(6)
        columns = [f"{self._number(depth)} AS {self._name()}", f"{self._text(depth)} AS {self._name()}"]
        where = f" WHERE {self._condition(depth)}" if self._rng.random() < 0.5 else ""
        order = f" ORDER BY px LIMIT {self._pick(_NUMBERS)}" if self._rng.random() < 0.2 else ""
        return f"SELECT sym, {', '.join(columns)} FROM {self._source()}{where}{order}"

    def _group(self) -> str:
        of_values = f"SUM({self._number(2)})", f"MAX({self._text(2)})"
        functions = (
            "COUNT(*)", *of_values, "AVG(px)", "COLLECT_LIST(px)", "MIN(t)",
            f"ARRAY_AGG(sym ORDER BY {self._number(1)})",
            f"PERCENTILE(px, {self._pick(_NUMBERS)})", f"MODE() WITHIN GROUP (ORDER BY {self._text(1)})",
            "LISTAGG(sym, ',') WITHIN GROUP (ORDER BY px DESC)",
        )  # fmt: skip
        return (
            f"SELECT {self._text(1)} AS g, {self._pick(functions)} AS {self._name()} FROM {self._source()} GROUP BY 1"
        )

    def _union(self) -> str:
        kind = self._pick((" UNION ", " UNION ALL ", " EXCEPT ", " INTERSECT "))
        return kind.join([self._select()] * self._pick((2, 3, 40)))

    def _emit(self) -> str:
        kinds = ("CHANGES", "ON WINDOW CLOSE", f"PERIODIC INTERVAL {self._length()[:-1]}")
        text = self._pick((self._group, self._select))()
        return self._pick((f"{text} EMIT {self._pick(kinds)}", f"{self._pick(('ISTREAM', 'RSTREAM'))}({text})"))

    def _over(self) -> str:
        frame = f"PARTITION BY sym ORDER BY t ROWS {self._pick(_NUMBERS)} PRECEDING"
        return f"SELECT SUM({self._number(1)}) OVER ({frame}) AS {self._name()} FROM trade"

    def _ranked(self) -> str:
        n = self._pick(_NUMBERS)
        functions = ("ROW_NUMBER()", "RANK()", f"NTILE({n})", f"LAG(px, {n}, {n})", f"LEAD(sym, {n})")
        frames = f"ROWS {n} PRECEDING", f"ROWS BETWEEN CURRENT ROW AND {n} FOLLOWING", f"RANGE {n} PRECEDING"
        key = self._pick(("n", "px", "t DESC", self._number(1)))
        over = self._pick(
            (
                f"{self._pick(functions)} OVER (PARTITION BY sym ORDER BY {key})",
                f"SUM({self._number(1)}) OVER (PARTITION BY sym ORDER BY {key} {self._pick(frames)})",
                f"MAX({self._text(1)}) OVER (ORDER BY {key})",
            )
        )
        return f"SELECT sym, px, {over} AS {self._name()} FROM {self._kept()}"

    def _nearest(self) -> str:
        match = (
            f"a.{self._pick(('t', 'n', 'px'))} {self._pick(('>=', '>', '<=', '<'))} b.{self._pick(('t', 'n', 'px'))}"
        )
        on = self._pick(("a.sym = b.sym", "a.n = b.n", "a.n + 1 = b.n"))
        columns = f"a.sym, a.px, b.px AS {self._name()}"
        sides = f"{self._kept()} AS a ASOF JOIN {self._kept()} AS b"
        return f"SELECT {columns} FROM {sides} MATCH_CONDITION ({match}) ON {on}"

    def _deep(self) -> str:
        times = self._pick((10, 60, 300, 600, 5000))
        before, after = self._pick(
            (("(", ")"), ("abs(", ")"), ("NOT ", ""), ("- ", ""), ("1 + (", ")"), ("CASE n WHEN 1 THEN ", " END"))
        )
        return f"SELECT {before * times}n{after * times} AS x FROM trade [NOW]"


def batches() -> Iterator[dict[str, list[Any]]]:
    """Yield batches of values at every limit; the time jumps by a year."""
    days = (0, 0, 365, 366)
    for batch, day in enumerate(days):
        at = EPOCH + timedelta(days=day, minutes=batch)
        numbers = (0, 1, -1, 2**63 - 1, -(2**63), None)
        doubles = (float("nan"), float("inf"), -0.0, 1e308, None, 1.5)
        texts = ("", "a", None, "é😀", "x" * 1000, "a")
        trades = [(*row, at + timedelta(seconds=n)) for n, row in enumerate(zip(texts, doubles, numbers, strict=True))]
        quotes = [(text, px, at) for text, px in zip(texts, doubles, strict=True)]
        buses = [(f"b{n}", text, px, at) for n, (text, px) in enumerate(zip(texts, doubles, strict=True))]
        end = END_US if batch == len(days) - 1 else int(at.timestamp() * 1e6)
        end = max(end, int(at.timestamp() * 1e6) + 10**9) if batch == len(days) - 1 else end
        rows = {TRADE: trades, QUOTE: quotes, BUSES: buses}
        yield {
            stream.name: [scanned(stream, frame(stream, some), range(1, len(some) + 1), {"f": end})]
            for stream, some in rows.items()
        }


def results(texts: dict[str, str]) -> tuple[dict[str, Counter[Any]], dict[int, str]]:
    """Run queries in one job, and make the rows of all tables; return those of healthy ones, and which failed."""
    host = LocalHost(Versions({1: {name: (number, text) for number, (name, text) in enumerate(texts.items(), 1)}}), 2)
    tables = Tables(host.plan(1))
    kept = {number for number, name in enumerate(texts, 1) if name.startswith("healthy")}
    given = iter(batches())
    for number in range(_MOST_BATCHES):
        tasks = next(given, None)
        if tasks is None and not is_behind(host):
            break
        left = host.batch(Command(number, 1), tasks or {})
        for each in left:
            if each.frame is not None:
                rows = result_rows([each.frame]).rows
                last = rows.column(-1)  # of a feed, the time
                times = pc.count_distinct(last).as_py() if pa.types.is_timestamp(last.type) else 0
                assert rows.num_rows + times <= MOST_ROWS, each.leaving
        tables.take(each for each in left if each.leaving.kind != "rows" or each.leaving.query in kept)
    found = {name: tables.contents(number) for number, name in enumerate(texts, 1) if number in kept}
    return found, tables.failed


def is_refused(text: str) -> bool:
    """Return whether a text is refused where it is registered. Any error but a refusal is one of ours."""
    try:
        rehearse(bind(text, CATALOG).plan, "q", "/nowhere/q", 1)
    except UpstreamError as error:
        if "cannot be planned" in str(error):
            raise AssertionError(f"{error}\n{text[:500]}") from error
        return True
    return False


def attack(count: int, seed: int) -> Counter[str]:
    """Register so many texts, and run those that are taken beside healthy queries.

    Raises
    ------
    AssertionError
        A healthy query has another table than alone, a query fails for a reason that is not written for users, or a
        step or the process has grown too large.
    """
    healthy = {f"healthy{number}": text for number, text in enumerate(HEALTHY)}
    alone, failed = results(healthy)
    # What a query has before it fails depends on how its batches are divided.
    alone = {name: rows for number, (name, rows) in enumerate(alone.items(), 1) if number not in failed}
    outcome = Counter[str]()
    texts = Texts(random.Random(seed))
    while count > 0:
        taken: dict[str, str] = {}
        while len(taken) < _TOGETHER and count > 0:
            text, count = texts.query(), count - 1
            if is_refused(text):
                outcome["refused"] += 1
            else:
                taken[f"poison{count}"] = text
        together, fails = results({**healthy, **taken})
        strange = [reason for reason in fails.values() if reason.partition(":")[0] not in _ON_PURPOSE]
        assert not strange, f"{strange} of {taken}"
        outcome["failed"] += len(fails) - len(failed)
        outcome["ran"] += len(taken) - len(fails) + len(failed)
        for name, rows in alone.items():
            assert repr(sorted(map(repr, together[name].elements()))) == repr(sorted(map(repr, rows.elements()))), name
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        assert used < MOST_BYTES, f"{used} bytes after {taken}"
        _LIBC.malloc_trim(0)
    return outcome


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--defect", choices=sorted(OF_TEXTS), help="restore this defect, see defects.py")
    given = parser.parse_args()
    if given.defect is not None:
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # a defect may take all memory
        for patch, places in OF_TEXTS[given.defect][1]:
            put_back(patch, places)
    print(json.dumps(attack(given.texts, given.seed)))


if __name__ == "__main__":
    main()
