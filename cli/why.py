"""``upstream why``: where a key's row comes from, or why there is none, without a JVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..conf.units import format_duration_us, now_us
from ..datasource.connectors.contract import place_text
from ..workbench.key_answer import instant_text, plain_json
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
        yield f"superseded before the table: {_counted(answer.superseded, 'update')}"
    if answer.staleness_s is not None:
        age = format_duration_us(answer.staleness_s * 1e6)
        yield f"staleness at the commit: {age}{', since the first of them arrived' if answer.superseded else ''}"
    if answer.late:
        yield "late: its event time was below the low-watermark of its input partition"
    # The sentence has the change that decides.
    decides = answer.commit is not None or any(each["kind"] == "removed" for each in answer.events[:1])
    for each in answer.events[decides:]:
        values = "" if each["row"] is None else f": {_values(each['row'])}"
        batch = "" if each["batch_id"] is None else f", batch {each['batch_id']}"
        yield f"earlier: {each['kind']} in version {each['version']}{batch}, {instant_text(each['at_us'])}{values}"
    for each in answer.coming:
        since = "" if each["arrival_us"] is None else f", arrived {instant_text(each['arrival_us'])}"
        batch = "" if each["batch"] is None else f" in batch {each['batch']}"
        yield f"{each['state']}{batch}: {place_text(each['place'])}{since}"
    for reason, count in answer.refused.items():
        yield f"dropped by the source: {_counted(count, 'row')}, {reason}"
    for each in answer.letters:
        sure = "" if each["exact"] else " (its text contains the key)"
        yield f"dead letter{sure}: {each['reason']}, from {each['origin']}"
    for each in answer.feeds:
        if "offset" in each:
            yield f"read: {each['feed']} up to offset {each['offset']}"
        else:
            yield f"unread input: {_counted(each['files'], 'file')} of {each['feed']}, {each['bytes']:,} bytes"
    for each in answer.operators:
        held = "" if each["rows"] is None else f": {_counted(each['rows'], 'row')}"
        since = "" if each["oldest_us"] is None else f", the oldest since {instant_text(each['oldest_us'])}"
        bound = "" if each["complete_to"] is None else f", complete up to {instant_text(each['complete_to'])}"
        if held or since or bound:
            yield f"state of {each['name']}{held}{since}{bound}"


def _way(answer: KeyAnswer) -> Iterator[str]:
    if not answer.way:
        return
    whole = answer.way[-1].to_us - answer.way[0].from_us
    for each in answer.way:
        yield f"  {each.name:20} {format_duration_us(each.to_us - each.from_us):>12}   until {instant_text(each.to_us)}"
    yield f"  {'total':20} {format_duration_us(whole):>12}   from {instant_text(answer.way[0].from_us)}"
    ago = format_duration_us(max(now_us() - answer.way[-1].to_us, 0))
    yield f"  {'since the commit':20} {ago:>12}"


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def _values(row: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={plain_json(value)}" for name, value in row.items())
