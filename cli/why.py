"""``upstream why``: where a key's row comes from, or why there is none, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.units import format_duration_us, now_us
from ..workbench.key_answer import instant_text, place_text, plain_json
from ..workbench.why import explain_key

if TYPE_CHECKING:
    from rich.console import Console

    from ..workbench.key_answer import KeyAnswer


def print_answer(
    path: str,
    key: Sequence[str],
    *,
    checkpoint: str | None,
    seconds: float,
    as_json: bool,
    storage: Mapping[str, str],
    console: Console,
) -> None:
    """Print the answer for a key."""
    answer = explain_key(path, key, storage=storage, checkpoint=checkpoint, seconds=seconds)
    if as_json:
        console.out(json.dumps(answer.to_json(), ensure_ascii=False), highlight=False)
        return
    named = ", ".join(f"{name}={value}" for name, value in answer.key.items())
    console.print(f"{named}: {answer.verdict}", style="bold", markup=False)
    console.print(answer.sentence, markup=False)
    for line in _facts(answer):
        console.print(line, markup=False)
    for sentence in answer.unknown:
        console.print(sentence, style="dim", markup=False)


def _facts(answer: KeyAnswer) -> Iterator[str]:
    if answer.row is not None:
        more = "" if answer.rows == 1 else f" (the newest of {answer.rows:,})"
        yield f"row{more}: {_values(answer.row)}"
    yield from _way(answer)
    if answer.superseded is not None:
        yield f"superseded: {answer.superseded:,} updates, before they reached the table"
    if answer.staleness_s is not None:
        age = format_duration_us(answer.staleness_s * 1e6)
        yield f"staleness at the commit: {age}, since the oldest of them arrived"
    if answer.late:
        yield "late: its time was below the low-watermark of its input partition"
    for each in answer.events[1:] if answer.commit and answer.events else answer.events:
        values = "" if each["row"] is None else f": {_values(each['row'])}"
        batch = "" if each["batch_id"] is None else f", batch {each['batch_id']}"
        yield f"earlier: {each['kind']} in version {each['version']}{batch}, {instant_text(each['at_us'])}{values}"
    for each in answer.coming:
        since = "" if each["arrival_us"] is None else f", since {instant_text(each['arrival_us'])}"
        yield f"{each['state']}: {place_text(each['place'])}{since}"
    for reason, count in answer.refused.items():
        yield f"dropped by the source: {count:,} rows, {reason}"
    for each in answer.letters:
        sure = "" if each["exact"] else " (its text has the key)"
        yield f"dead letter{sure}: {each['reason']}, from {each['origin']}"
    for each in answer.feeds:
        yield "read up to: " + ", ".join(f"{name} {value}" for name, value in each.items())
    for each in answer.operators:
        held = "" if each["rows"] is None else f": {each['rows']:,} rows"
        since = "" if each["oldest_us"] is None else f", the oldest since {instant_text(each['oldest_us'])}"
        yield f"{each['operator']} {each['number']}{held}{since}"


def _way(answer: KeyAnswer) -> Iterator[str]:
    if not answer.way:
        return
    whole = answer.way[-1].to_us - answer.way[0].from_us
    for each in answer.way:
        yield f"  {each.name:20} {format_duration_us(each.to_us - each.from_us):>12}   to {instant_text(each.to_us)}"
    yield f"  {'together':20} {format_duration_us(whole):>12}   from {instant_text(answer.way[0].from_us)}"
    ago = format_duration_us(max(now_us() - answer.way[-1].to_us, 0))
    yield f"  {'since then':20} {ago:>12}"


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={plain_json(value)}" for name, value in row.items())
