"""Metric families, and their exposition for Prometheus: text, OpenMetrics, and protobuf with native histograms."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal

from ..core.feedback.ages import Ages, bin_bound_s

Kind = Literal["counter", "gauge", "histogram"]
Labels = Mapping[str, str]

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROTOBUF = "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"

_PER_OCTAVE, BUCKETS_SCHEMA = 8, 3
# An octave each, from 1/1024 s to 18 hours: the bins' own bounds, so no count is a guess.
_CLASSIC = range(0, 27 * _PER_OCTAVE, _PER_OCTAVE)
_BOUNDS = [(last, bin_bound_s(last)) for last in _CLASSIC]
# Bin n of the ages is the bucket n - 80: (2^((n - 81) / 8), 2^((n - 80) / 8)] seconds.
_FIRST_BIN = 10 * _PER_OCTAVE
_UNITS = ("seconds", "bytes")


@dataclasses.dataclass(frozen=True)
class MetricFamily:
    """A metric of each table. The name of a counter is without its ``_total``."""

    name: str
    kind: Kind
    help: str
    samples: Sequence[tuple[Labels, float | Ages]]


def classic_buckets(ages: Ages) -> Iterator[tuple[float, int]]:
    """Yield bounds in seconds, each with the number of ages below it; the last one is infinite."""
    left, at, upto = sorted(ages.bins.items()), 0, 0
    for last, bound in _BOUNDS:
        while at < len(left) and left[at][0] <= last:
            upto += left[at][1]
            at += 1
        yield bound, upto
    yield float("inf"), ages.count


def accepted(header: str) -> tuple[str, Callable[[Sequence[MetricFamily]], bytes]]:
    """Return the media type that a scraper prefers by its Accept header, and what writes it; text if it has no wish."""
    best, found = 0.0, TEXT
    for wish in header.split(","):
        kind, *parameters = (part.strip().lower() for part in wish.split(";"))
        given = dict(each.split("=", 1) for each in parameters if "=" in each)
        media = _offered(kind, given)
        try:
            weight = float(given.get("q", 1))
        except ValueError:
            weight = 0.0
        if media is not None and weight > best:
            best, found = weight, media
    return found, _WRITERS[found]


def _offered(kind: str, given: Mapping[str, str]) -> str | None:
    if kind == "application/vnd.google.protobuf" and given.get("encoding") == "delimited":
        return PROTOBUF
    if kind == "application/openmetrics-text" and given.get("version", "1.0.0") == "1.0.0":
        return OPEN_METRICS
    return TEXT if kind in ("text/plain", "text/*", "*/*") else None


def text(families: Iterable[MetricFamily]) -> bytes:
    """Return the families in Prometheus's text format 0.0.4."""
    lines = [line for each in families for line in _family(each, f"{each.name}{_suffix(each)}", [])]
    return _encoded(lines)


def open_metrics(families: Iterable[MetricFamily]) -> bytes:
    """Return the families as OpenMetrics 1.0."""
    lines: list[str] = []
    for each in families:
        unit = each.name.rpartition("_")[2]
        lines += _family(each, each.name, [f"# UNIT {each.name} {unit}"] if unit in _UNITS else [])
    return _encoded([*lines, "# EOF"])


def _family(family: MetricFamily, name: str, unit: Sequence[str]) -> Iterator[str]:
    yield f"# HELP {name} {_escaped(family.help)}"
    yield f"# TYPE {name} {family.kind}"
    yield from unit
    sample = f"{family.name}{_suffix(family)}"
    for labels, value in family.samples:
        pairs = _pairs(labels)
        if not isinstance(value, Ages):
            yield f"{sample}{{{pairs}}} {_number(value)}"
            continue
        bucket = f"{family.name}_bucket{{{pairs}{',' if pairs else ''}le="
        for bound, upto in classic_buckets(value):
            yield f'{bucket}"{_number(bound)}"}} {upto}'
        yield f"{family.name}_sum{{{pairs}}} {_number(value.total_s)}"
        yield f"{family.name}_count{{{pairs}}} {value.count}"


def _suffix(family: MetricFamily) -> str:
    return "_total" if family.kind == "counter" else ""


def _pairs(labels: Labels) -> str:
    return ",".join([f'{name}="{_escaped(value)}"' for name, value in labels.items()])


@functools.lru_cache(1 << 12)  # a table's name is in each of its samples
def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if value != value else repr(value)  # noqa: PLR0124 what is not a number differs from itself


def _encoded(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


# Fields of io.prometheus.client.MetricFamily and its parts, by number: a scraper that asks for native histograms takes
# no other form. The message is so small that its code would take more room than these lines.
_TYPES: Mapping[Kind, int] = {"counter": 0, "gauge": 1, "histogram": 4}
_VALUES: Mapping[Kind, int] = {"counter": 3, "gauge": 2, "histogram": 7}


def protobuf(families: Iterable[MetricFamily]) -> bytes:
    """Return the families as delimited messages of protobuf: histograms have classic and native buckets."""
    return b"".join(_sized(_message(each)) for each in families)


def _message(family: MetricFamily) -> bytes:
    head = [_text(1, family.name + _suffix(family)), _text(2, family.help), _integer(3, _TYPES[family.kind])]
    for labels, value in family.samples:
        pairs = [_part(1, _text(1, name) + _text(2, each)) for name, each in labels.items()]
        body = _histogram(value) if isinstance(value, Ages) else _double(1, value)
        head.append(_part(4, b"".join([*pairs, _part(_VALUES[family.kind], body)])))
    return b"".join(head)


def _histogram(ages: Ages) -> bytes:
    *bounded, _ = classic_buckets(ages)
    parts = [_integer(1, ages.count), _double(2, ages.total_s)]
    parts += [_part(3, _integer(1, upto) + _double(2, bound)) for bound, upto in bounded]
    parts += [_integer(5, _signed(BUCKETS_SCHEMA)), _double(6, bin_bound_s(0)), _integer(7, ages.bins.get(0, 0))]
    deltas: list[bytes] = []
    after, before = 0, 0
    for start, counts in bin_runs(ages):
        parts.append(_part(12, _integer(1, _signed(start - after)) + _integer(2, len(counts))))
        after = start + len(counts)
        for count in counts:
            deltas.append(_integer(13, _signed(count - before)))
            before = count
    return b"".join([*parts, *deltas])


def bin_runs(ages: Ages) -> Iterator[tuple[int, list[int]]]:
    """Yield runs of adjacent native buckets: the index of the first, and their counts; bin 0 is no such bucket."""
    start, counts = 0, list[int]()
    for number, count in sorted(ages.bins.items()):
        index = number - _FIRST_BIN
        if not number:
            continue
        if counts and index == start + len(counts):
            counts.append(count)
            continue
        if counts:
            yield start, counts
        start, counts = index, [count]
    if counts:
        yield start, counts


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _signed(number: int) -> int:
    return (number << 1) ^ (number >> 63)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _double(field: int, value: float) -> bytes:
    return _varint(field << 3 | 1) + struct.pack("<d", value)


def _sized(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _part(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _sized(value)


def _text(field: int, value: str) -> bytes:
    return _part(field, value.encode(errors="replace"))


_WRITERS: Mapping[str, Callable[[Sequence[MetricFamily]], bytes]] = {
    TEXT: text,
    OPEN_METRICS: open_metrics,
    PROTOBUF: protobuf,
}
