"""Any keys, order, split into batches and tasks, engines, deaths and repeats: the table of a plain computation."""

import dataclasses
import json
from decimal import Decimal
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.sink import Sink
from kit.splits import split

from upstream.sink.spec.steps import CommitStep
from upstream.sink.table import key_index
from upstream.sink.table.tombstones import APP_ID, FOLDER

from ..deaths import dying_at

ENGINES = ("rewrite", "vectors")
KEYS: dict[str, tuple[list[tuple[str, pa.DataType]], Any]] = {
    "k": ([("k", pa.int32())], lambda n: (n - 3,)),
    "text": ([("text", pa.string())], lambda n: ("é" * n,)),
    "amount": ([("amount", pa.decimal128(20, 2))], lambda n: ((Decimal(n - 4) / 4).quantize(Decimal("0.01")),)),
    "raw": ([("raw", pa.binary())], lambda n: (bytes(range(n)),)),
    "half": ([("half", pa.float64())], lambda n: (n / 2,)),
    "a,b": ([("a", pa.int64()), ("b", pa.string())], lambda n: (n % 3, str(n // 3))),
    "both": ([("both", pa.struct([("x", pa.int8()), ("y", pa.string())]))], lambda n: ({"x": n % 3, "y": str(n)},)),
}
FATES = ("done", "done", "aborted", CommitStep.CHECKED, CommitStep.MERGED_AGAIN, CommitStep.COMMITTED)
VALUE = pa.list_(pa.int64())


@dataclasses.dataclass(frozen=True)
class Row:
    key: int
    time: int
    seq: int  # which is its payload, too
    gone: bool


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.data(),
    key=st.sampled_from(sorted(KEYS)),
    arrivals=st.lists(st.tuples(st.integers(0, 5), st.integers(-3, 3), st.booleans()), max_size=40),
    timed=st.booleans(),
    few_hashes=st.booleans(),
    mixed=st.booleans(),
)
def test_the_table_is_that_of_a_plain_computation(
    make_sink, tmp_path_factory, engine, data, key, arrivals, timed, few_hashes, mixed
):
    columns, value_of = KEYS[key]
    schema = pa.schema([*columns, ("t", pa.int64()), ("v", VALUE)])
    home = tmp_path_factory.mktemp("table")
    place = {"buckets": "2", "indexLocation": str(home / "index"), "maintenance": "off"}
    sink = dataclasses.replace(make_sink(schema, key=key, eventTime="t" if timed else "", **place), folder=home)
    rows = [Row(*row[:2], seq, row[2]) for seq, row in enumerate(arrivals)]
    model: dict[int, Row] = {}
    hashes = key_index.key_hashes
    with pytest.MonkeyPatch.context() as patched:
        if few_hashes:
            patched.setattr(key_index, "key_hashes", lambda *given: hashes(*given) % 3)
            patched.setattr("upstream.sink.merge.engines.key_hashes", lambda *given: hashes(*given) % 3)
        for batch_id, batch in enumerate(split(data, data.draw(st.permutations(rows)) if timed else rows)):
            sink.options = {**sink.options, "engine": data.draw(st.sampled_from(ENGINES)) if mixed else engine}
            tasks = [
                [as_batch(sink, value_of, part) for part in split(data, task)]
                for task in split(data, data.draw(st.permutations(batch)))
            ]
            fate = data.draw(st.sampled_from(FATES))
            if fate == "aborted":
                sink.writer().abort(sink.tasks(*tasks), batch_id)
            elif isinstance(fate, CommitStep):
                with dying_at(fate):
                    sink.batch(batch_id, *tasks)
            before = dict(model)
            expected = counts_of(model, batch, timed)
            summary = sink.batch(batch_id, *tasks)
            assert sink.batch(batch_id, *tasks) is None, "a repeat"
            live = {str(value_of(row.key)): (row.time, [row.seq]) for row in model.values() if not row.gone}
            assert (summary is None) <= (fate == CommitStep.COMMITTED or not batch)
            if summary is not None:
                assert {name: getattr(summary, name) for name in expected} == expected
                assert summary.keys == len(live)
            if model or before:
                assert rows_of(sink.table(), columns) == live
    if model:
        check_what_lies_there(sink, timed=timed)
        check_other_readers(sink, columns)


def as_batch(sink: Sink, value_of: Any, rows: list[Row]) -> pa.RecordBatch:
    return sink.rows(
        [(*value_of(row.key), row.time, None if row.gone else [row.seq]) for row in rows],
        seq=[row.seq for row in rows],
        arrival_us=[1000 + row.seq for row in rows],
        deleted=np.array([row.gone for row in rows], dtype=np.bool_),
    )


def counts_of(model: dict[int, Row], batch: list[Row], timed: bool) -> dict[str, int]:
    """What a batch's summary counts; the model takes its rows in."""
    found = dict.fromkeys(("updates", "applied", "superseded", "older", "deleted", "absent"), 0)
    found["updates"] = len(batch)

    def order(row: Row) -> tuple[int, int]:
        return (row.time if timed else 0, row.seq)

    for key in {row.key for row in batch}:
        newest = max((row for row in batch if row.key == key), key=order)
        held = model.get(key)
        live = held is not None and not held.gone
        if held is not None and order(held) > order(newest):
            found["older"] += 1
            continue
        model[key] = newest
        found["applied"] += live or not newest.gone
        found["deleted"] += live and newest.gone
        found["absent"] += newest.gone and not live
    found["superseded"] = len(batch) - found["applied"]
    return found


def rows_of(table: pa.Table, key: list[tuple[str, pa.DataType]]) -> dict[str, tuple[Any, ...]]:
    rows = table.to_pylist()
    found = {str(tuple(row[name] for name, _ in key)): (row["t"], row["v"]) for row in rows}
    assert len(found) == len(rows)
    return found


def check_what_lies_there(sink: Sink, *, timed: bool) -> None:
    """No attempt has left a file, and deletions are remembered only where times decide."""
    named = set().union(*(sink.live_files(version) for version in range(sink.version() + 1)))
    assert {path for path in sink.files() if path.startswith("_upstream_bucket")} <= named
    number = DeltaTable(str(sink.path)).transaction_version(APP_ID) or 0
    listed = json.loads((sink.path / FOLDER / f"{number}.json").read_text()) if number else {}
    hidden = {str(path.relative_to(sink.path)) for path in (sink.path / FOLDER).rglob("*") if path.is_file()}
    assert hidden == ({f"{FOLDER}{number}.json", *listed.values()} if number else set())
    assert timed or not number


def check_other_readers(sink: Sink, key: list[tuple[str, pa.DataType]]) -> None:
    expected = rows_of(sink.table(), key)
    query = QueryBuilder().register("t", DeltaTable(str(sink.path))).execute("SELECT * FROM t").read_all()
    assert rows_of(pa.table(query), key) == expected
    assert rows_of(pl.read_delta(str(sink.path)).to_arrow(), key) == expected
