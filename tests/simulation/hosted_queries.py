"""What chance registers: queries of the language, views that some of them name, and changes of the registry."""

import random
import re
from typing import Any

from .hosted_rows import UNIT_US
from .scenario import Action

NAMES = ("q0", "q1", "q2", "q3", "q4")
STREAMS = ("trade", "quote", "buses")
_WORDS = ("create", "create", "alter", "deactivate", "activate", "drop", "view", "weight")
_LENGTHS = ("RANGE 2 MINUTES", "RANGE 5 MINUTES", "RANGE 5 MINUTES SLIDE 1 MINUTE", "RANGE 4 MINUTES SLIDE 2 MINUTES")


def text(chance: random.Random) -> str:
    """One query; a relation without aggregates stands in a stream of its changes."""
    return chance.choice(_FORMS)(chance)


def view(chance: random.Random) -> str:
    """What a view is of. Queries that name it read `sym` and `n`."""
    return f"SELECT sym, n FROM {_window(chance, 'trade')}{chance.choice(('', ' WHERE n > 0'))}"


def _window(chance: random.Random, stream: str, *more: str) -> str:
    """A window over a stream that is not one of updates."""
    return f"{stream} [{chance.choice((*_LENGTHS, *more))}]"


def _any_window(chance: random.Random, stream: str) -> str:
    return _window(chance, stream, "NOW", "ROWS 3", "PARTITION BY sym ROWS 2", "RANGE UNBOUNDED")


def _groups(chance: random.Random) -> str:
    where = chance.choice(("", "", " WHERE n > 0", " WHERE px < 3"))
    having = chance.choice(("", "", " HAVING COUNT(*) > 1"))
    return f"SELECT sym, COUNT(*) AS c, SUM(n) AS s, MAX(px) AS m FROM {_any_window(chance, 'trade')}{where} GROUP BY sym{having}"  # noqa: E501


def _whole(chance: random.Random) -> str:
    return f"SELECT COUNT(*) AS c, SUM(n) AS s, MIN(px) AS m FROM {_any_window(chance, 'trade')}"


def _changes(chance: random.Random) -> str:
    kind = chance.choice(("ISTREAM", "ISTREAM", "DSTREAM"))
    source = _window(chance, "trade", "ROWS 3", "PARTITION BY sym ROWS 2")
    rows = (
        f"SELECT sym, n FROM {source} WHERE px > 1",
        f"SELECT sym, COUNT(*) AS c FROM {source} GROUP BY sym",
        f"SELECT sym FROM {source} EXCEPT ALL SELECT sym FROM {_window(chance, 'quote')}",
        f"SELECT COUNT(*) AS c FROM {source}",
    )
    return f"{kind}({chance.choice(rows)})"


def _newest(chance: random.Random) -> str:
    return chance.choice(
        (
            "SELECT route_id, COUNT(*) AS c, AVG(speed) AS v FROM LATEST(buses) GROUP BY route_id",
            "SELECT vehicle_id, route_id, speed FROM LATEST(buses)",
            "SELECT vehicle_id, speed FROM LATEST(buses) WHERE speed > 1",
            "SELECT route_id FROM LATEST(buses)",
            "SELECT COUNT(*) AS c FROM LATEST(buses)",
            "SELECT vehicle_id, speed FROM LATEST(buses) ORDER BY speed DESC NULLS LAST, vehicle_id ASC LIMIT 2",
        )
    )


def _join(chance: random.Random) -> str:
    how = chance.choice(("JOIN", "LEFT JOIN", "FULL JOIN"))
    one, two = _window(chance, "trade"), _window(chance, "quote")
    return f"SELECT a.sym AS x, b.sym AS y, COUNT(*) AS c, SUM(n) AS s FROM {one} AS a {how} {two} AS b ON a.sym = b.sym GROUP BY a.sym, b.sym"  # noqa: E501


def _of_newest(chance: random.Random) -> str:
    one = _window(chance, "trade")
    return f"SELECT route_id, COUNT(*) AS c FROM {one} AS a JOIN LATEST(buses) AS b ON a.sym = b.vehicle_id GROUP BY route_id"  # noqa: E501


def _partners(chance: random.Random) -> str:
    one, two = _window(chance, "trade"), _window(chance, "quote")
    how = chance.choice(("IN", "NOT IN"))
    return f"SELECT n, COUNT(*) AS c FROM {one} WHERE sym {how} (SELECT sym FROM {two}) GROUP BY n"


def _sets(chance: random.Random) -> str:
    one, two = _window(chance, "trade"), _window(chance, "quote")
    how = chance.choice(("UNION", "UNION ALL", "EXCEPT", "INTERSECT"))
    return f"SELECT sym, COUNT(*) AS c FROM (SELECT sym FROM {one} {how} SELECT sym FROM {two}) AS x GROUP BY sym"


def _distinct(chance: random.Random) -> str:
    return f"SELECT COUNT(*) AS c FROM (SELECT DISTINCT sym, n FROM {_window(chance, 'trade')}) AS x"


def _hops(chance: random.Random) -> str:
    size, slide = chance.choice(((4, 2), (2, 2), (5, 1)))
    source = f"HOP(trade, t, INTERVAL '{slide}' MINUTE, INTERVAL '{size}' MINUTE)"
    return f"SELECT sym, COUNT(*) AS c, SUM(n) AS s FROM {source} GROUP BY sym"


def _of_view(chance: random.Random) -> str:
    return f"SELECT sym, COUNT(*) AS c, SUM(n) AS s FROM {chance.choice(('v0', 'v1'))} GROUP BY sym"


def _of_models(chance: random.Random) -> str:
    one = _window(chance, "trade")
    return chance.choice(
        (
            f"SELECT kind, COUNT(*) AS c, SUM(n) AS s FROM {one} AS a JOIN models ON a.sym = model GROUP BY kind",
            "SELECT kind, COUNT(*) AS c FROM LATEST(buses) AS a JOIN models ON a.vehicle_id = model GROUP BY kind",
            f"SELECT n, COUNT(*) AS c FROM {one} WHERE sym IN (SELECT model FROM models) GROUP BY n",
        )
    )


def models(chance: random.Random) -> list[list[str]]:
    """Rows of the stored relation, some of them twice."""
    return [[chance.choice(("a", "b", "7")), chance.choice("xy")] for _ in range(chance.choice((0, 1, 3, 5)))]


def _failing(chance: random.Random) -> str:
    """What fails once a row comes on which it fails: see :data:`REASONS`."""
    return chance.choice(
        (
            f"SELECT sym, SUM(1 / n) AS r FROM {_window(chance, 'trade')} GROUP BY sym",
            f"SELECT sym, SUM(CAST(sym AS BIGINT)) AS r FROM {_window(chance, 'quote')} GROUP BY sym",
            "SELECT route_id, SUM(1 / (speed - 2)) AS r FROM LATEST(buses) GROUP BY route_id",
        )
    )


REASONS = {
    "1 / n": "n = 0",
    "CAST(sym": "TRY_CAST(sym AS BIGINT) IS NULL AND sym IS NOT NULL",
    "1 / (speed": "speed = 2",
}
"""Of a query that has this, which rows let it fail."""

_FORMS = (
    _groups, _groups, _groups, _whole, _changes, _changes, _newest, _newest, _newest, _join, _of_newest, _partners,
    _sets, _distinct, _hops, _of_view, _of_models, _of_models, _failing,
    _failing,
)  # fmt: skip


def changes(chance: random.Random, count: int) -> list[Action]:
    """Changes of the registry in an order in which most of them apply. Some queries share what they compute."""
    texts = [text(chance) for _ in range(5)] + [chance.choice((text, _failing, _failing))(chance)]
    there: dict[str, bool] = {}
    given: dict[str, Any]
    made: list[Action] = [["models", models(chance)], ["refresh"]]
    made.append(["change", {"kind": "view", "name": "v0", "text": view(chance)}])
    # Most are there from the beginning: what comes later lacks rows, so that less can be said of it.
    for name in NAMES[: chance.choice((2, 3, 4))]:
        given = {"kind": "create", "name": name, "text": chance.choice(texts), "buckets": 1}
        made.append(["change", _lenient(given)])
        there[name] = True
    for _ in range(count):
        word, some = chance.choice((*_WORDS, "models")), texts
        if word == "models":  # what begins next is to read them, at their version of now or at an earlier one
            made.append(["models", models(chance)])
            made += [["refresh"]] if chance.random() < 0.4 else []
            some, word = [_of_models(chance)], chance.choice(("create", "alter"))
        given = {"kind": word}
        if word == "view":
            given = {"kind": chance.choice(("view", "drop_view")), "name": chance.choice(("v0", "v1"))}
            given |= {"text": view(chance)} if given["kind"] == "view" else {}
        elif word == "create" or not there:
            given = {"kind": "create", "name": chance.choice(NAMES), "text": chance.choice(some)}
            given |= {"buckets": chance.choice((1, 1, 2)), "active": chance.random() < 0.9}
            there.setdefault(given["name"], True)
        else:
            given["name"] = chance.choice(sorted(there))
            if word == "weight":
                given |= {"kind": "alter", "weight": chance.choice((0.5, 3.0))}
            elif word == "alter":
                given["text"] = chance.choice(some)
            elif word == "drop":
                given |= {"delete_table": True} if chance.random() < 0.5 else {}
                if chance.random() < 0.5:  # another query comes at once in its place
                    made.append(["change", given])
                    given = {"kind": "create", "name": given["name"], "text": chance.choice(some), "buckets": 1}
                else:
                    del there[given["name"]]
        made.append(["change", _lenient(given)])
    return made


_STRICT = re.compile(r"STREAM|LATEST|ROWS|NOW|SESSION")


def _lenient(given: dict[str, Any]) -> dict[str, Any]:
    """Let late rows count for a while, where they can; `given` alone decides."""
    chance = random.Random(str(given))
    if given["kind"] == "create" and not _STRICT.search(given["text"]) and chance.random() < 0.4:
        given["lateness_us"] = chance.choice((1, 3, 10)) * UNIT_US
    return given
