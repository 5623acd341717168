"""Random queries that mean the same here and in DuckDB: joins, groups, sets, arrays, subqueries, one in another."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from .poison import Texts

Columns = Sequence[tuple[str, str]]
"""What an expression may read, each with its type: `s` for text, `f` for a double, `i` for a whole number."""

_STREAMS: dict[str, Columns] = {
    "trade": (("sym", "s"), ("px", "f"), ("n", "i")),
    "quote": (("sym", "s"), ("bid", "f")),
    "buses": (("vehicle_id", "s"), ("route_id", "s"), ("speed", "f")),
}
_STORED: Columns = (("domain", "s"), ("type", "s"))
_WINDOWS = (
    *["RANGE 2 MINUTES", "RANGE 5 MINUTES"] * 3, "RANGE 5 MINUTES SLIDE 1 MINUTE", "RANGE 4 MINUTES SLIDE 2 MINUTES",
    "NOW", "ROWS 3", "ROWS 3 SLIDE 2",
)  # fmt: skip
_LITERALS = {
    "s": ("'a'", "'b'", "'a'", "'b'", "'7'", "''", "'r1'", "CAST(NULL AS STRING)"),
    "f": ("0.5E0", "1E0", "2E0", "1E0", "3E0", "-1E0", "CAST(NULL AS DOUBLE)"),
    "i": ("0", "1", "2", "2", "5", "-3", "CAST(NULL AS BIGINT)"),
}
_JOINS = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN", "CROSS JOIN")
# What makes a value of a type of others, each with the letter of its type, and of conditions, C. Of a condition, `x` is
# of any type, and `k` a literal of the same type, or a value.
_CALLS = {
    "s": ("UPPER(s)", "(s || s)", "SUBSTRING(s, 1, 1)", "CAST(i AS STRING)"),
    "f": ("(f + f)", "(f - f)", "(f * f)", "ABS(f)", "(f / 2)", "CAST(i AS DOUBLE)", "(f + i)"),
    "i": ("(i + i)", "(i - i)", "(i * i)", "LENGTH(s)", "ABS(i)", "(i % 3)", "(- i)"),
}
_OF_ANY = ("COALESCE(x, x)", "NULLIF(x, x)", "CASE WHEN C THEN x ELSE x END", "CASE WHEN C THEN x END", "IF(C, x, x)")
_CONDITIONS = (
    "x = k", "x < k", "x <> k", "x >= k", "x IS NULL", "x IS NOT NULL", "x BETWEEN k AND k", "x IN (k, k)",
    "NOT C", "(C AND C)", "(C OR C)", "(C OR C)", "x <=> k", "s LIKE 'a%'", "NOT x IN (k, k)",
    "(CASE WHEN C THEN C ELSE C END)", "(s, i) = (s, i)", "(i, s) IN ((i, s), (i, s))", "(x, i) <> (x, i)",
    # In the order of structs, null is the least value for Spark, and the greatest one for DuckDB.
    "ROW(COALESCE(s, ''), COALESCE(f, 1E0)) >= ROW(COALESCE(s, ''), COALESCE(f, 1E0))",
)  # fmt: skip
# Without deviations, since DuckDB finds 0 for that of one NaN.
_AGGREGATES = {
    "s": ("MIN(s)", "MAX(s)"),
    "f": (
        "SUM(f)",
        "AVG(f)",
        "AVG(i)",
        "MIN(f)",
        "MAX(f)",
        "AVG(DISTINCT f)",
        "MEDIAN(f)",
        "PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY f)",
        "PERCENTILE_DISC(0.7) WITHIN GROUP (ORDER BY CAST(i AS DOUBLE) DESC)",
    ),  # DuckDB finds no deviation of one NaN
    "i": (
        *("COUNT(*)", "COUNT(x)", "COUNT(DISTINCT x)", "SUM(i)", "SUM(DISTINCT i)", "MIN(i)", "MAX(i)", "BIT_OR(i)"),
        "COUNT(DISTINCT (s, i))",
    ),
}
# Functions of a row and others: of ranks, of other rows, and of a frame.
_RANKS = {"i": ("ROW_NUMBER()", "RANK()", "DENSE_RANK()", "NTILE(3)"), "f": ("PERCENT_RANK()", "CUME_DIST()"), "s": ()}
_OF_OTHERS = ("LAG(x)", "LEAD(x)", "LAG(x, 2)", "LEAD(x, 1, k)")
_OF_FRAMES = {
    "s": ("FIRST_VALUE(s)", "LAST_VALUE(s)", "MIN(s)", "MAX(s)", "NTH_VALUE(s, 2)"),
    "f": ("SUM(f)", "AVG(f)", "AVG(i)", "MAX(f)", "LAST_VALUE(f)"),
    "i": ("COUNT(*)", "COUNT(x)", "SUM(i)", "MIN(i)", "FIRST_VALUE(i)", "NTH_VALUE(i, 2)"),
}
_FRAMES = (
    "", "", "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING", "ROWS BETWEEN 2 PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING", "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
)  # fmt: skip


class Queries(Texts):
    """Random queries, most of which are not refused; of newest rows alone, and of stored relations, if so wanted."""

    def __init__(self, rng: random.Random, *, newest: bool = False, stored: bool = False) -> None:
        super().__init__(rng)
        self._names = 0
        self._newest = newest
        self._stored = stored

    def relation(self) -> str:
        """Return a query whose result is a relation."""
        return self.typed()[0]

    def typed(self) -> tuple[str, str]:
        """Return such a query and the types of its columns."""
        types = self._types()
        return self._query(types, self._pick((1, 2, 2, 3))), types

    def condition(self) -> str:
        """Return a condition on trades with functions of Spark's own, at the limits of types."""
        return self._condition(self._pick((1, 2, 3)))

    # --- values -----------------------------------------------------------------------------------------------------

    def _types(self) -> str:
        return "".join(self._pick("sfi") for _ in range(self._pick((1, 2, 2, 3))))

    def _chance(self, share: float) -> bool:
        return self._rng.random() < share

    def _value(self, kind: str, columns: Columns, depth: int) -> str:
        if depth <= 0 or self._chance(0.5):
            own = [name for name, each in columns if each == kind]
            return self._pick(own) if own and self._chance(0.9) else self._pick(_LITERALS[kind])
        return self._put(self._pick((*_CALLS[kind], *_OF_ANY)), kind, columns, depth - 1)

    def _put(self, template: str, kind: str, columns: Columns, depth: int) -> str:
        """Put values in the places of `s`, `f` and `i`, of the kind in those of `x`, and conditions in those of `C`."""

        def value(found: re.Match[str]) -> str:
            letter = found[0]
            if letter == "C":
                return self._truth(columns, depth)
            if letter == "k" and self._chance(0.6):
                return self._pick(_LITERALS[kind])
            return self._value(kind if letter in "xk" else letter, columns, depth)

        return re.sub(r"\b[sfixkC]\b", value, template)

    def _truth(self, columns: Columns, depth: int) -> str:
        known = [kind for _, kind in columns] or ["i"]
        template = self._pick(_CONDITIONS[:8] if depth <= 0 else _CONDITIONS)
        return self._put(template, self._pick(known), columns, depth - 1)

    # --- sources ----------------------------------------------------------------------------------------------------

    def _name_of(self) -> str:
        self._names += 1
        return f"r{self._names}"

    def _base(self) -> tuple[str, Columns]:
        """Return a stream as a relation, and its columns."""
        if self._stored and self._chance(0.15):
            return "Domains", _STORED
        stream = self._pick(("trade", "trade", "quote", "buses", "buses"))
        if self._newest or (stream == "buses" and self._chance(0.8)):
            return "LATEST(buses)", _STREAMS["buses"]
        window = self._pick(_WINDOWS)
        if self._chance(0.15):
            window = f"PARTITION BY {_STREAMS[stream][0][0]} ROWS {self._pick(('1', '2', '1 SLIDE 2', '3 SLIDE 2'))}"
        if stream == "trade" and self._chance(0.1):
            return "HOP(trade, t, INTERVAL '2' MINUTE, INTERVAL '4' MINUTE)", _STREAMS[stream]
        if self._chance(0.1):
            source = "buses, timestamp" if stream == "buses" else f"{stream} PARTITION BY {_STREAMS[stream][0][0]}, t"
            return f"SESSION({source}, INTERVAL '{self._pick('123')}' MINUTE)", _STREAMS[stream]
        return f"{stream} [{window}]", _STREAMS[stream]

    def _recent(self) -> tuple[str, Columns]:
        """Return rows that leave as time passes."""
        stream = self._pick((*_STREAMS,))
        time, rows = ("timestamp", "LATEST(buses)") if stream == "buses" else ("t", f"{stream} [RANGE UNBOUNDED]")
        names = ", ".join(name for name, _ in _STREAMS[stream])
        until = self._pick(
            (
                f"{time} > now() - INTERVAL '2' MINUTE",
                f"{time} + INTERVAL '3' MINUTE >= now()",
                f"{time} BETWEEN now() - INTERVAL '3' MINUTE AND now() - INTERVAL '1' MINUTE",
                f"{time} >= now() - INTERVAL '4' MINUTE AND {self._truth(_STREAMS[stream], 1)}",
                f"{time} <= now() - INTERVAL '1' MINUTE AND {time} > now() - INTERVAL '2' MINUTE",
            )
        )
        return f"(SELECT {names} FROM {rows} WHERE {until})", _STREAMS[stream]

    def _pairs_in_windows(self) -> tuple[str, Columns]:
        """Return the last window of pairs of rows by the time of either; marks say for how many minutes it waits."""
        one, two = self._name_of(), self._name_of()
        low, high = sorted(self._rng.sample((-2, 0, 1), 2))
        how, (time, late) = self._pick(("JOIN", "JOIN", "LEFT JOIN")), self._pick((("t0", -low), ("t1", high)))
        near = f"{one}.t BETWEEN {two}.t + INTERVAL '{low}' MINUTE AND {two}.t + INTERVAL '{high}' MINUTE"
        names = f"{one}.sym, {one}.n, {two}.bid, {one}.t AS t0, {two}.t AS t1"
        sides = f"trade [RANGE UNBOUNDED] AS {one} {how} quote [RANGE UNBOUNDED] AS {two}"
        inner = f"SELECT {names} FROM {sides} ON {one}.sym = {two}.sym AND {near}"
        slide, size = self._pick(((2, 2), (2, 5), (1, 3)))
        lengths = f"INTERVAL '{slide}' MINUTE, INTERVAL '{size}' MINUTE"
        return f"HOP(/*{one}*/({inner})/*{one} {max(late, 0)}*/, {time}, {lengths})", (*_STREAMS["quote"], ("n", "i"))

    def _item(self, depth: int) -> tuple[str, Columns]:
        """Return an item of FROM with its alias, and its columns."""
        name = self._name_of()
        if depth > 0 and self._chance(0.35):
            types = self._types()
            text, columns = f"({self._query(types, depth - 1)})", [(f"c{at}", kind) for at, kind in enumerate(types)]
        elif not self._newest and self._chance(0.1):
            text, columns = self._recent()
        elif not self._newest and self._chance(0.08):
            text, columns = self._pairs_in_windows()
        else:
            text, columns = self._base()
        found = [(f"{name}.{each}", kind) for each, kind in columns]
        if text.startswith(("SESSION", "HOP(/*")) and self._chance(0.7):
            found += [(f"MINUTE({name}.window_start)", "i"), (f"SECOND({name}.window_end)", "i")]
        return f"{text} AS {name}", found

    def _sources(self, depth: int) -> tuple[str, Columns]:
        """Return what stands behind FROM, and the columns that can be read."""
        text, columns = self._item(depth)
        for _ in range(self._pick((0, 0, 0, 1, 1, 2))):
            other, more = self._item(depth - 1)
            how = self._pick(_JOINS)
            if how == "CROSS JOIN":
                text += f"{self._pick((' CROSS JOIN', ','))} {other}"
            else:
                text += f" {how} {other} ON {self._match(columns, more, equal=0.9)}"
            if how not in {"SEMI JOIN", "ANTI JOIN"}:
                columns = [*columns, *more]
        return text, columns

    def _match(self, columns: Columns, others: Columns, equal: float) -> str:
        """Return a condition on both sides."""
        pairs = [f"{one} = {two}" for one, kind in columns for two, each in others if kind == each]
        found = [self._pick(pairs)] if pairs and self._chance(equal) else []
        if not found or self._chance(0.2):
            found.append(self._truth([*columns, *others], 1))
        return " AND ".join(found)

    def _where(self, columns: Columns, depth: int) -> str:
        found = [self._truth(columns, 2)] if self._chance(0.4) else []
        while depth > 0 and self._chance(0.25):
            found.append(self._subquery(columns, depth - 1))
        return f" WHERE {' AND '.join(found)}" if found else ""

    def _subquery(self, columns: Columns, depth: int) -> str:
        name, kind = self._pick(columns)
        word = self._pick(("IN", "NOT IN", "EXISTS", "NOT EXISTS", "value", "value"))
        if word == "value":
            sign = self._pick(("=", "<", ">=", "<>"))
            return f"{self._value(kind, columns, 1)} {sign} {self._scalar(kind, columns, depth)}"
        item, inner = self._item(depth)
        if word in {"EXISTS", "NOT EXISTS"}:
            return f"{word} (SELECT 1 FROM {item} WHERE {self._match(columns, inner, equal=0.95)})"
        where = self._inside(columns, inner)
        plain = [each for each in columns if "(" not in each[0]]
        if self._chance(0.3) and len(plain) > 1:
            (name, kind), (other, another) = self._rng.sample(plain, 2)
            mark = f"/*{self._name_of()}*/" if word == "NOT IN" else ""
            return f"({name}, {other}) {word} {mark}({self._query(kind + another, depth)}{mark})"
        own = [each for each, other in inner if other == kind]
        if own and self._chance(0.7):
            return f"{name} {word} (SELECT {self._pick(own)} FROM {item}{where})"
        return f"{name} {word} ({self._query(kind, depth)})"

    def _scalar(self, kind: str, columns: Columns, depth: int) -> str:
        """Return a subquery that is a value; it may compare with columns of the query around it."""
        item, inner = self._item(depth)
        return f"(SELECT {self._aggregate(kind, inner)} FROM {item}{self._inside(columns, inner)})"

    def _inside(self, columns: Columns, inner: Columns) -> str:
        pairs = [f"{one} = {two}" for one, each in columns for two, other in inner if each == other]
        return f" WHERE {self._pick(pairs)}" if pairs and self._chance(0.5) else ""

    # --- queries ----------------------------------------------------------------------------------------------------

    def _query(self, types: str, depth: int) -> str:
        """Return a query with columns `c0`, `c1`, … of some types."""
        ways = [self._rows, self._rows, self._groups, self._groups, self._newest_of, self._beside, self._ranked]
        ways += [self._elements, self._of_lists]
        ways += [] if self._newest else [self._periods, self._near, self._nearest]
        ways += [self._beside_stored] if self._stored else []
        if depth > 0:
            ways += [self._sets, self._first, self._named]
        return self._pick(ways)(types, depth)

    def _items(self, types: str, columns: Columns, depth: int = 2) -> str:
        return ", ".join(f"{self._value(kind, columns, depth)} AS c{at}" for at, kind in enumerate(types))

    def _rows(self, types: str, depth: int) -> str:
        text, columns = self._sources(depth)
        distinct = "DISTINCT " if self._chance(0.2) else ""
        more = [(self._scalar(kind, columns, depth - 1), kind) for kind in "sfi" if depth > 0 and self._chance(0.1)]
        items = self._items(types, [*columns, *more])
        return f"SELECT {distinct}{items} FROM {text}{self._where(columns, depth)}"

    def _elements(self, types: str, depth: int) -> str:
        """Return rows with the elements of an array, or elements of constants with rows."""
        name, kind = self._name_of(), self._pick("sfi")
        if self._chance(0.3):
            constants = ", ".join(self._pick(_LITERALS[kind]) for _ in range(self._pick((1, 2, 3))))
            array = self._pick((f"ARRAY({constants})", "GENERATE_SERIES(0, 4, 2)", "GENERATE_SERIES(3, -1, -1)"))
            columns: Columns = [(f"{name}.x", "i" if array.startswith("G") else kind)]
            text = f"UNNEST({array}) AS {name}(x)"
            for how in self._pick(((), ("JOIN",), ("LEFT JOIN",), ("FULL JOIN",))):
                item, more = self._item(depth)
                text += f" {how} {item} ON {self._match(columns, more, equal=0.9)}"
                columns = [*columns, *more]
            return f"SELECT {self._items(types, columns, 1)} FROM {text}{self._where(columns, depth)}"
        text, columns = self._item(depth)
        values = ", ".join(self._value(kind, columns, 1) for _ in range(self._pick((1, 2, 3))))
        array, kind = self._pick(
            ((f"ARRAY({values})", kind), (f"GENERATE_SERIES(1, ABS({self._value('i', columns, 0)}) % 4)", "i"))
        )
        text += f"{self._pick((',', ' CROSS JOIN'))} UNNEST({array}) AS {name}(x)"
        columns = [*columns, (f"{name}.x", kind)]
        return f"SELECT {self._items(types, columns, 1)} FROM {text}{self._where(columns, depth)}"

    def _of_lists(self, types: str, depth: int) -> str:
        """Return the elements of ordered lists."""
        item, columns = self._item(depth)
        (key, by), (value, kind), (order, _) = (self._pick(columns) for _ in range(3))
        lists = f"ARRAY_AGG({value} ORDER BY {order}{self._order()}, {value}) FILTER (WHERE {value} IS NOT NULL)"
        name, other = self._name_of(), self._name_of()
        text = f"(SELECT {key} AS c0, {lists} AS xs FROM {item} GROUP BY {key}) AS {name}"
        found: Columns = [(f"{name}.c0", by), (f"{other}.x", kind)]
        text += f" CROSS JOIN UNNEST({name}.xs) AS {other}(x)"
        return f"SELECT {self._items(types, found, 1)} FROM {text}{self._where(found, depth)}"

    def _aggregate(self, kind: str, columns: Columns) -> str:
        template = self._pick(_AGGREGATES[kind])
        where = f" FILTER (WHERE {self._truth(columns, 1)})" if self._chance(0.15) else ""
        if kind == "s" and self._chance(0.3):
            value = self._value("s", columns, 1)
            order = f"{self._value(self._pick('sfi'), columns, 0)}{self._order()}, {value}"
            return f"STRING_AGG({value}, ',' ORDER BY {order}){where}"
        return self._put(template, self._pick("sfi"), columns, self._pick((0, 0, 1))) + where

    def _groups(self, types: str, depth: int) -> str:
        text, columns = self._sources(depth)
        where = self._where(columns, depth)
        keys = [self._pick(columns) for _ in range(self._pick((0, 1, 1, 2)))]
        if keys and self._chance(0.2):
            kind = self._pick("sfi")
            keys[0] = (self._value(kind, columns, 1), kind)
        keys = [each for each in dict.fromkeys(keys) if any(name in each[0] for name, _ in columns)]
        found = [*keys, *((self._aggregate(kind, columns), kind) for kind in types + self._pick("sfi"))]
        by = f" GROUP BY {', '.join(name for name, _ in keys)}" if keys else ""
        having = f" HAVING {self._truth(found, 1)}" if self._chance(0.25) else ""
        if having and depth > 0 and self._chance(0.3):
            having += f" AND {self._pick(found)[0]} IS NOT NULL AND COUNT(*) >= {self._scalar('i', (), depth - 1)}"
        if len(keys) == 2 and self._chance(0.15):
            by = f" GROUP BY {self._pick(('ROLLUP', 'CUBE'))} ({by.removeprefix(' GROUP BY ')})"
            having = " HAVING COUNT(*) > 0"  # of no rows, Spark has no group and DuckDB one
        return f"SELECT {self._items(types, found, 1)} FROM {text}{where}{by}{having}"

    def _newest_of(self, types: str, _: int) -> str:
        """Return the first rows of each partition, by all columns that it reads."""
        text, columns = self._base()
        order = ", ".join(f"{each}{self._order()}" for each, _ in self._rng.sample(columns, len(columns)))
        rank = f"ROW_NUMBER() OVER (PARTITION BY {self._pick(columns)[0]} ORDER BY {order})"
        where = f" WHERE {self._truth(columns, 1)}" if self._chance(0.3) else ""
        return f"SELECT {self._items(types, columns, 1)} FROM {text}{where} QUALIFY {rank} <= {self._pick((1, 1, 2))}"

    def _over(self, kind: str, columns: Columns) -> str:
        """Return a function with OVER. Where the order of equal rows matters, all columns order them."""
        which = self._pick((_RANKS[kind], _OF_OTHERS, _OF_FRAMES[kind]))
        function = self._put(self._pick(which or _OF_OTHERS), kind, columns, self._pick((0, 0, 1)))
        order = self._rng.sample(columns, len(columns))
        if which is _OF_FRAMES[kind] and self._chance(0.2):
            order = []
        if function in {"RANK()", "DENSE_RANK()", "PERCENT_RANK()", "CUME_DIST()"}:
            order = order[: self._pick((1, len(order)))]
        by = ", ".join(f"{each}{self._order()}" for each, _ in order)
        frame = self._pick(_FRAMES) if which is _OF_FRAMES[kind] and order else ""
        parts = [f"PARTITION BY {self._pick(columns)[0]}" if self._chance(0.6) else "", f"ORDER BY {by}" if by else ""]
        return f"{function} OVER ({' '.join(each for each in (*parts, frame) if each)})"

    def _beside(self, types: str, depth: int) -> str:
        """Return rows with values of the rows beside them; some are first or last of these.

        Equal rows count once: which of them is first is open, and their values of two functions could go together in
        several ways.
        """
        text, given = self._item(depth)
        name = self._name_of()
        inner = ", ".join(f"{each} AS c{number}" for number, (each, _) in enumerate(given))
        text = f"(SELECT DISTINCT {inner} FROM {text}) AS {name}"
        columns = [(f"{name}.c{number}", kind) for number, (_, kind) in enumerate(given)]
        over = [(self._over(kind, columns), kind) for kind in types]
        where = f" WHERE {self._truth(columns, 1)}" if self._chance(0.3) else ""
        rank = self._pick(("RANK()", "DENSE_RANK()", "ROW_NUMBER()"))
        order = ", ".join(f"{each}{self._order()}" for each, _ in self._rng.sample(columns, len(columns)))
        by = f"PARTITION BY {self._pick(columns)[0]} " if self._chance(0.7) else ""
        first = f" QUALIFY {rank} OVER ({by}ORDER BY {order}) {self._pick(('<= 2', '= 1', '> 1'))}"
        first = first if self._chance(0.3) else ""
        return f"SELECT {self._items(types, [*over, *over, *columns], 1)} FROM {text}{where}{first}"

    def _ranked(self, types: str, depth: int) -> str:
        """Return groups with values of the groups beside them."""
        text, columns = self._item(depth)
        keys = [self._pick(columns)]
        found = [*keys, *((self._aggregate(kind, columns), kind) for kind in types)]
        found += [(self._over(kind, found), kind) for kind in types]
        where = f" WHERE {self._truth(columns, 1)}" if self._chance(0.3) else ""
        return f"SELECT {self._items(types, found, 1)} FROM {text}{where} GROUP BY {keys[0][0]}"

    def _periods(self, types: str, _: int) -> str:
        """Return groups by a time of rows that stay: what is kept of a group ends with its time."""
        name, (stream, columns) = self._name_of(), self._pick((*_STREAMS.items(),))
        columns = [(f"{name}.{each}", kind) for each, kind in columns]
        time = f"{name}.{'timestamp' if stream == 'buses' else 't'}"
        time = self._pick((f"date_trunc('MINUTE', {time})", f"date_trunc('HOUR', {time})", f"CAST({time} AS DATE)"))
        key = self._pick((None, self._pick(columns)))
        keys = [key] if key else []
        found = [*keys, *((self._aggregate(kind, columns), kind) for kind in types + self._pick("sfi"))]
        where = f" WHERE {self._truth(columns, 1)}" if self._chance(0.3) else ""
        having = f" HAVING {self._truth(found, 1)}" if self._chance(0.2) else ""
        by = ", ".join([time, *(each for each, _ in keys)])
        rows = f"{stream} [RANGE UNBOUNDED{self._pick(('', ' SLIDE 2 MINUTES'))}] AS {name}{where}"
        return f"SELECT {self._items(types, found, 1)} FROM {rows} GROUP BY {by}{having}"

    def _beside_stored(self, types: str, _: int) -> str:
        """Return a stored relation's rows with, or without, those of a stream, which may have no window."""
        one, two = self._name_of(), self._name_of()
        text, more = self._base()
        if not self._newest and self._chance(0.5):
            stream, more = self._pick((*_STREAMS.items(),))
            text = f"{stream} [RANGE UNBOUNDED]"
        sides = [f"Domains AS {one}", f"{text} AS {two}"]
        columns, more = [(f"{one}.{each}", kind) for each, kind in _STORED], [(f"{two}.{each}", _) for each, _ in more]
        left = self._chance(0.6)
        how = self._pick(("LEFT", "FULL", "ANTI", "SEMI", "RIGHT") if left else ("RIGHT", "FULL", "LEFT", "ANTI"))
        on = self._match(columns, more, equal=0.9)
        where = f" WHERE {self._pick(more)[0]} IS NULL" if how not in {"ANTI", "SEMI"} and self._chance(0.4) else ""
        found = [*columns, *more] if how not in {"ANTI", "SEMI"} else columns if left else more
        rows = f"{sides[not left]} {how} JOIN {sides[left]} ON {on}{where}"
        if self._chance(0.3):
            inner = [(self._aggregate(kind, found), kind) for kind in types + "i"]
            return f"SELECT {self._items(types, inner, 1)} FROM {rows}"
        return f"SELECT {self._items(types, found, 1)} FROM {rows}"

    def _near(self, types: str, _: int) -> str:
        """Return pairs of rows that stay, whose times are near each other."""
        one, two = self._name_of(), self._name_of()
        columns = [(f"{one}.{each}", kind) for each, kind in _STREAMS["trade"]]
        more = [(f"{two}.{each}", kind) for each, kind in _STREAMS["quote"]]
        how = self._pick(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
        ends = self._rng.sample((f"{two}.t - INTERVAL '2' MINUTE", f"{two}.t", f"{two}.t + INTERVAL '1' MINUTE"), 2)
        near = f"{one}.t BETWEEN {min(ends, key=_place)} AND {max(ends, key=_place)}"
        on = f"{one}.sym = {two}.sym AND {near}" + (
            f" AND {self._truth([*columns, *more], 1)}" if self._chance(0.3) else ""
        )
        columns = columns if how in {"SEMI JOIN", "ANTI JOIN"} else [*columns, *more]
        windows = self._rng.choices(("[RANGE UNBOUNDED]", "[RANGE 5 MINUTES]"), (3, 1), k=2)
        sides = f"trade {windows[0]} AS {one} {how} quote {windows[1]} AS {two} ON {on}"
        return f"SELECT {self._items(types, columns)} FROM {sides}"

    def _nearest(self, types: str, _: int) -> str:
        """Return rows with the nearest row before or after them, of which only the key and the time are sure."""
        one, two = self._name_of(), self._name_of()
        columns = [(f"{one}.{each}", kind) for each, kind in _STREAMS["trade"]]
        other, key, time = self._pick((("quote", "sym", "t"), ("buses", "vehicle_id", "timestamp")))
        columns += [(f"{two}.{key}", "s"), (f"MINUTE({two}.{time})", "i"), (f"SECOND({two}.{time})", "i")]
        left, right = (f"[{self._pick(_WINDOWS)}]" for _ in range(2))
        right = f"LATEST({other})" if other == "buses" else f"{other} {right}"
        how = self._pick(("ASOF JOIN", "ASOF LEFT JOIN"))
        on = f"{one}.sym = {two}.{key} AND {one}.t {self._pick(('>=', '>', '<=', '<'))} {two}.{time}"
        return f"SELECT {self._items(types, columns)} FROM trade {left} AS {one} {how} {right} AS {two} ON {on}"

    def _order(self) -> str:
        return self._pick(("", " DESC", " NULLS LAST", " DESC NULLS FIRST"))

    def _sets(self, types: str, depth: int) -> str:
        kinds = ("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT", "INTERSECT ALL")
        parts = [self._pick((self._rows, self._groups))(types, depth - 1) for _ in range(self._pick((2, 2, 3)))]
        return "".join(f" {self._pick(kinds)} {each}" if at else each for at, each in enumerate(parts))

    def _first(self, types: str, depth: int) -> str:
        order = ", ".join(f"c{at}{self._order()}" for at in self._rng.sample(range(len(types)), len(types)))
        names = ", ".join(f"c{at}" for at in range(len(types)))
        inner = self._query(types, depth - 1)
        return f"SELECT {names} FROM ({inner}) AS {self._name_of()} ORDER BY {order} LIMIT {self._pick((1, 2, 5))}"

    def _named(self, types: str, depth: int) -> str:
        """Return a query that reads another one twice."""
        name, inner = self._name_of(), self._types()
        one, two = self._name_of(), self._name_of()
        columns = [[(f"{each}.c{at}", kind) for at, kind in enumerate(inner)] for each in (one, two)]
        text = (
            f"{name} AS {one} {self._pick(('JOIN', 'LEFT JOIN'))} {name} AS {two} ON {self._match(*columns, equal=1)}"
        )
        query = self._query(inner, depth - 1)
        return f"WITH {name} AS ({query}) SELECT {self._items(types, [*columns[0], *columns[1]])} FROM {text}"


def _place(end: str) -> int:
    """Return the place of an end in time among the others of :meth:`Queries._near`."""
    return ("+" in end) - ("-" in end)
