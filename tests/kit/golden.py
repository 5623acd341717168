"""Answers that were recorded before a change that must leave them as they are, in tests/golden.json.

An answer is the rows of a table, sorted, as text. It has no column that depends on the clock or on the order of
arrival. `tests/golden.py` says how to record, and what has no recorded answer.
"""

import contextlib
import datetime as dt
import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

FILE = Path(__file__).resolve().parents[1] / "golden.json"
RECORDS = "UPSTREAM_RECORDS"
"""The environment variable with which :func:`check` records."""

APART = re.compile(r"_upstream.*|left_row|right_row")
_WHOLE = 4


def text_of(value: Any) -> str:
    """Return a value as text that two runs have alike."""
    if isinstance(value, float):
        return f"{value:.9g}"  # a sum in another order differs behind that
    if isinstance(value, dt.datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {text_of(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(text_of, value)) + "]"
    return "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)


def digest(rows: Iterable[Any]) -> str:
    """Return how many rows there are, and the SHA-256 of their sorted texts."""
    lines = sorted(map(text_of, rows))
    return f"{len(lines)} rows, {hashlib.sha256(chr(10).join(lines).encode()).hexdigest()}"


def answer(rows: pa.Table) -> dict[str, Any]:
    """Return the columns of a table, its digest, and a few rows to read."""
    names = [name for name in rows.column_names if not APART.fullmatch(name)]
    lines = [tuple(row.values()) for row in rows.select(names).to_pylist()]
    return {"columns": ", ".join(names), "digest": digest(lines), "rows": sorted(map(text_of, lines))[:_WHOLE]}


def tables(folder: Path, below: str = "") -> dict[str, Any]:
    """Return the answers of all Delta tables in a folder, or below a part of it, by path; not metrics or rows aside."""
    found: dict[str, Any] = {}
    for place in sorted({log.parents[1] for log in (folder / below).rglob("_delta_log/*.json")}):
        if place.name in ("metrics", "dead_letters"):
            continue
        rows = pa.RecordBatchReader.from_stream(DeltaTable(str(place)).scan()).read_all()
        found[place.relative_to(folder).as_posix()] = answer(rows)
    return found


def check(part: str, name: str, found: Any) -> None:
    """Compare an answer with the recorded one, or record it."""
    known: dict[str, dict[str, Any]] = {}
    with contextlib.suppress(FileNotFoundError):
        known = json.loads(FILE.read_text(encoding="utf-8"))
    if RECORDS in os.environ:
        known.setdefault(part, {})[name] = found
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
        return
    assert name in known.get(part, {}), f"{part}, {name} is not recorded: python -m tests.golden --record"
    was = known[part][name]
    assert json.loads(json.dumps(found)) == was, f"the answer of {part}, {name} was\n{was}\nand is\n{found}"
