"""The table of dead letters: each task's rows of a batch once, whoever appends beside it and wherever it dies."""

import datetime as dt
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from upstream.conf.errors import TableError
from upstream.delta_format.append_table import DeadLetterWriter, count_dead_letters, letters_of, payloads
from upstream.storage.folder import TableFolder

ROWS = pa.table({"k": [1, 2], "v": ["a", "b"]})


def append(folder: Path, writer: str, number: int, files: int = 1) -> int:
    task = DeadLetterWriter(TableFolder(str(folder)), writer, number)
    for _ in range(files):
        task.write(letters_of(ROWS, batch=number, origin=writer, reason="late"))
    return task.commit()


def test_tasks_that_append_at_once_and_again(tmp_path):
    with ThreadPoolExecutor(6) as pool:
        for _ in range(2):
            counts = list(pool.map(lambda task: append(tmp_path, f"task-{task}", 3, files=2), range(12)))
            assert counts == [4] * 12
    assert count_dead_letters(TableFolder(str(tmp_path))) == 48
    found = pl.read_delta(str(tmp_path))
    assert found.group_by("origin").len()["len"].to_list() == [4] * 12
    assert set(found["batch"]) == {3}
    assert len(list(tmp_path.glob("*.parquet"))) == 24


# Killed at the n-th call of those that write, each time in a process of its own.
DYING = """
import os, signal, sys
from deltalake import DeltaTable
from upstream.delta_format import append_table
from upstream.storage.folder import TableFolder
import pyarrow as pa

left = [int(sys.argv[2])]
def dies(real):
    def call(*given, **more):
        for step in (True, False):
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            if step:
                made = real(*given, **more)
        return made
    return call

append_table.write_whole = dies(append_table.write_whole)
DeltaTable.create = dies(DeltaTable.create)
DeltaTable.create_write_transaction = dies(DeltaTable.create_write_transaction)
task = append_table.DeadLetterWriter(TableFolder(sys.argv[1]), "task", 5)
for _ in range(2):
    rows = pa.table({"k": [1, 2], "v": ["a", "b"]})
    task.write(append_table.letters_of(rows, batch=5, origin="task", reason="late"))
task.commit()
"""


@pytest.mark.fault
def test_a_task_that_is_killed_anywhere_appends_once(tmp_path):
    for moment in range(1, 10):
        folder = tmp_path / str(moment)
        command = [sys.executable, "-c", DYING, str(folder), str(moment)]
        ended = subprocess.run(command, check=False).returncode
        append(folder, "task", 5, files=2)
        assert pl.read_delta(str(folder))["payload"].to_list() == ['{"k":1,"v":"a"}', '{"k":2,"v":"b"}'] * 2
        assert len(list(folder.glob("*.parquet"))) == 2, "what died left no file"
        if ended == 0:
            break
    assert moment == 9, "before and after the table is made, two files, and the commit"


def test_an_append_that_takes_place_although_it_seems_to_fail(tmp_path, monkeypatch):
    transact = DeltaTable.create_write_transaction

    def lose_the_answer(*given: Any, **more: Any) -> None:
        transact(*given, **more)
        raise DeltaError("connection lost")

    monkeypatch.setattr(DeltaTable, "create_write_transaction", lose_the_answer)
    assert append(tmp_path, "task", 1) == 2
    assert count_dead_letters(TableFolder(str(tmp_path))) == 2


def test_a_place_that_is_not_its_own_is_refused(tmp_path):
    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "a.csv").touch()
    DeltaTable.create(str(tmp_path / "other"), pa.schema([("batch", pa.string())]))
    (tmp_path / "file").touch()
    for name, why in {"feed": "a file already: a.csv", "other": "a table of others", "file": "cannot be used"}.items():
        with pytest.raises(TableError, match=why):
            append(tmp_path / name, "task", 1)


def test_every_value_is_in_the_payload():
    utc, day = dt.timezone.utc, dt.datetime(2024, 2, 29, 1, 2, 3)
    plain = {"i": 2**63 - 1, "f": 0.5, "s": 'a"\\\n', "d": day.date(), "t": day.replace(tzinfo=utc), "n": day}
    plain |= {"b": True, "dec": Decimal("1.10"), "null": None}
    rows = pa.table({name: pa.array([value], None if name != "null" else pa.string()) for name, value in plain.items()})
    (one,) = payloads(rows).to_pylist()
    expected = {**plain, "d": "2024-02-29", "t": "2024-02-29 01:02:03.000000+00:00", "n": "2024-02-29 01:02:03.000000"}
    assert json.loads(one) == expected | {"dec": "1.10"}
    nested = {
        "m": pa.array([[("x", 1)]], pa.map_(pa.string(), pa.int64())),
        "l": [[1.5, float("-inf")]],
        "x": [b"a\xff"],
    }
    for name, value in nested.items():
        rows = rows.append_column(name, value if isinstance(value, pa.Array) else pa.array(value))
    (whole,) = payloads(rows).to_pylist()
    assert json.loads(whole) == json.loads(one) | {"m": {"x": 1}, "l": [1.5, "-Infinity"], "x": "Yf8="}
    assert payloads(pa.table({"f": [float("nan"), None]})).to_pylist() == ['{"f": "NaN"}', '{"f": null}']
