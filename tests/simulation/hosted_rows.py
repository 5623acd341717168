"""The rows of the streams that random queries read."""

import dataclasses
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from kit.continuous import BUSES, EPOCH, QUOTE, TRADE

from upstream.operators.relations.plan.nodes import Stream

STREAMS: Mapping[str, Stream] = {each.name: each for each in (TRADE, QUOTE, BUSES)}
UNIT_US = 30_000_000
_BEGIN_US = int(EPOCH.timestamp()) * 1_000_000
_KEYS = ("a", "b", "7", None)
_NUMBERS = (1, 2, 0, 5, None, 3)


def at(unit: int) -> int:
    return _BEGIN_US + unit * UNIT_US


@dataclasses.dataclass(frozen=True)
class Row:
    """A row as the source has it: its times in µs, its number over all streams, and the batch that takes it."""

    stream: str
    feed: str
    cells: tuple[Any, ...]
    time: int
    arrival: int
    seq: int
    deleted: bool
    batch: int


@dataclasses.dataclass(frozen=True)
class Taken:
    """What one batch takes. Readers of newest rows get `newest`; the others may lag, and get `rows` and `bounds`."""

    rows: list[Row]
    newest: list[Row]
    bounds: dict[str, dict[str, int]]
    lagging: frozenset[str]  # streams whose two kinds of readers get their rows from different tasks


def cells_of(stream: str, key: int, value: int, time: int) -> tuple[Any, ...]:
    """Return the values of a row; only vehicles have more than a few keys."""
    moment = EPOCH + timedelta(microseconds=time - _BEGIN_US)
    number = _NUMBERS[value]
    if stream == "trade":
        return _KEYS[key % 4], None if number is None else number / 2, number, moment
    if stream == "quote":
        return (
            _KEYS[key % 4 if value else (2 if key % 4 == 1 else key % 4)],
            None if number is None else float(number),
            moment,
        )
    vehicle = _KEYS[key % 3] if key < len(_KEYS) else f"v{key}"
    return vehicle, f"r{value % 2}" if value < 5 else None, None if number is None else float(number), moment
