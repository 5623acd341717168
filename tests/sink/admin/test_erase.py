"""`upstream erase`: the current version has nothing of the key, and after the retention no file has."""

import datetime as dt
import os
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from kit.invalid_text import not_utf_8
from kit.sink import Sink
from kit.tables import read_letters
from typer.testing import CliRunner

import upstream
from upstream.cli.main import app
from upstream.conf.errors import OptionError, TableError
from upstream.delta_format.append_table import DeadLetterWriter, letters_of
from upstream.delta_format.latest_table import CommitChanges
from upstream.sink.admin import erase as erasing
from upstream.sink.admin.check import check_table
from upstream.sink.admin.erase import erase_key
from upstream.sink.maintenance.runner import TableMaintenance
from upstream.sink.spec.maintenance_rules import MaintenanceRules
from upstream.sink.table import table as table_change
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")
DAY_US = 86_400_000_000
# Text, so that it can be looked for in bytes; in the midst of the others, and at either end of them.
KEYS = ["anna@example.org", "mmm-secret@example.org", "zoe@example.org"]
COLUMNS = pa.schema([("k", pa.string()), ("t", pa.int64()), ("v", pa.string())])


def holds(file: Path, secret: str) -> bool:
    """Whether a file has the text, in its bytes or in the values that it holds."""
    if secret.encode() in file.read_bytes():
        return True
    if file.suffix == ".parquet":
        return secret in str(pq.read_table(file).to_pydict())
    if file.suffix == ".arrow":
        return secret in str(pyarrow.ipc.open_file(file).read_all().to_pydict())
    return False


def holders(folder: Path, secret: str) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file() and holds(file, secret)}


def grown(make_sink: Any, tmp_path: Path) -> Sink:
    """Rows, dead rows, deletions, late and conflicting rows of each key, over some versions."""
    aside = {"deadLetterRows": "late,conflicts,text", "deadLetters": str(tmp_path / "letters")}
    sink = make_sink(COLUMNS, buckets="2", maintenance="off", **aside)
    others = [f"other{number}@example.org" for number in range(40)]
    sink.write(0, [sink.rows([(key, 5, "a") for key in [*KEYS, *others]]), sink.punctuation(20)])
    sink.write(1, [sink.rows([(key, 5, "b") for key in [*KEYS, others[0]]], seq=100)])
    marks = np.array([True, False, False])
    sink.write(2, [sink.rows([(key, 7, "c") for key in KEYS], seq=200, deleted=marks)])
    no_text = not_utf_8(sink.rows([(key, 9, "d") for key in KEYS], seq=400), "v")
    sink.write(3, [sink.rows([(key, 8, "d") for key in others], seq=300), no_text])
    return sink


def erase(sink: Sink, *key: Any, **more: Any) -> erasing.Erasure:
    return erase_key(str(sink.path), *key, index_location=sink.options["indexLocation"], **more)


def retire(folder: Path, days: int) -> None:
    now = time.time_ns() // 1000 + days * DAY_US
    rules, table = MaintenanceRules(DAY_US), DeltaTable(str(folder))
    TableMaintenance(TableFolder(str(folder)), table, rules, lambda: now, compact=lambda _: 0).run(whole=True)


@pytest.mark.parametrize("key", KEYS)
def test_no_file_holds_the_key_when_the_retention_is_over(make_sink, tmp_path, key):
    sink = grown(make_sink, tmp_path)
    before = sink.latest()
    for place in ("table", "letters"):
        assert holders(tmp_path / place, key), f"else there is nothing to erase from {place}"
    done = erase(sink, key)
    assert done.rows == (key in before)
    assert done.tombstones == (key == KEYS[0])
    assert sum(done.outputs.values()) >= 3
    (last,) = DeltaTable(str(tmp_path / "letters")).history(1)
    assert CommitChanges.of_commit(last) is not None, "those who follow the dead letters go on"
    assert sink.latest() == {other: row for other, row in before.items() if other != key}
    assert check_table(str(sink.path)).healthy
    live = {str(sink.path / path) for path in sink.live_files()}
    assert not any(holds(Path(path), key) for path in live)
    assert not holders(tmp_path / "index", key), "the cache holds it no more"
    assert not holders(sink.path / "_upstream_tombstones", key)
    (until,) = {each.until_us for each in done.remains[:1]}
    assert until is not None
    assert abs(until - time.time_ns() // 1000 - 7 * DAY_US) < DAY_US, "seven days, as the table records it"
    for place in ("table", "letters"):
        assert holders(tmp_path / place, key), "earlier versions have it"
        retire(tmp_path / place, days=3)
        assert holders(tmp_path / place, key) == set()
    assert holders(tmp_path / "letters", KEYS[1] if key != KEYS[1] else KEYS[2]), "the other keys are where they were"
    # Nothing is known of a deletion any more: an older row is a new one.
    sink.write(4, [sink.rows([(key, 1, "again")], seq=400)])
    assert sink.latest() == before | {key: (1, "again")}
    assert check_table(str(sink.path)).healthy


def test_a_batch_under_way_is_refused_with_words_and_goes_on_elsewhere(make_sink, tmp_path):
    sink = grown(make_sink, tmp_path)
    same, other = sink.tasks([sink.rows([(KEYS[1], 9, "e")], seq=400)]), "other1@example.org"
    erase(sink, KEYS[1])
    with pytest.raises(TableError, match="restart the query; it repeats the batch"):
        sink.commit(same, 4)
    sink.write(4, [sink.rows([(KEYS[1], 9, "e")], seq=400)])
    assert sink.latest()[KEYS[1]] == (9, "e")
    # And one that has nothing to do with the key's bucket is not disturbed.
    buckets = {key: erasing.bucket_of([pa.array([key])], 2)[0] for key in (*KEYS, *sink.latest())}
    far = next(key for key in sink.latest() if buckets[key] != buckets[KEYS[2]])
    elsewhere = sink.tasks([sink.rows([(far, 19, "f")], seq=500)])
    erase(sink, KEYS[2])
    assert sink.commit(elsewhere, 5) is not None
    assert sink.latest()[far] == (19, "f")
    assert other in sink.latest()


def test_a_commit_in_between_is_heeded(make_sink, tmp_path, monkeypatch):
    sink, put, raced = grown(make_sink, tmp_path), table_change.put_entry, list[int]()

    def race(*given: Any) -> bool:
        if not raced:
            raced.append(1)
            sink.write(4, [sink.rows([(KEYS[1], 9, "meanwhile")], seq=400)])
        return put(*given)

    monkeypatch.setattr(table_change, "put_entry", race)
    erase(sink, KEYS[1])
    assert KEYS[1] not in sink.latest()
    live = sink.live_files()
    assert not any(holds(sink.path / path, KEYS[1]) for path in live)
    assert check_table(str(sink.path)).healthy


def test_dead_letters_of_the_query_s_operators_alone_are_erased(make_sink, tmp_path):
    letters = str(tmp_path / "letters")
    sink = make_sink(COLUMNS, buckets="2", deadLetters=letters)
    sink.write(0, [sink.rows([(KEYS[0], 5, "a")])])
    writer = DeadLetterWriter(TableFolder(letters), "windows/0", 1)
    late = pa.table({"k": KEYS[:2], "t": [1, 1], "v": ["late", "late"]}, schema=COLUMNS)
    writer.write(letters_of(late, batch=0, origin="windows/0", reason="late"))
    writer.commit()
    assert erase(sink, KEYS[0]).outputs == {letters: 1}
    assert [row["k"] for row in read_letters(letters)] == [KEYS[1]]


def test_a_dry_run_changes_nothing(make_sink, tmp_path):
    sink = grown(make_sink, tmp_path)
    files = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()}
    done = erase(sink, KEYS[1], dry_run=True)
    assert (done.rows, done.tombstones, done.found) == (1, 0, True)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*") if file.is_file()} == files
    assert not erase(sink, "nobody", dry_run=True).found


def test_what_a_dead_query_had_not_yet_put_out_is_erased_too(make_sink, tmp_path):
    sink = grown(make_sink, tmp_path)
    # It dies after its commit, before the late rows are in their table.
    assert sink.batch(4, [sink.rows([(KEYS[1], 3, "late again")], seq=400)]).late == 1
    erase(sink, KEYS[1])
    assert KEYS[1] not in {row["k"] for row in read_letters(tmp_path / "letters")}
    sink.write(5, [sink.rows([("other1@example.org", 9, "e")], seq=500)])
    assert KEYS[1] not in {row["k"] for row in read_letters(tmp_path / "letters")}


# Forks for each order, before delta-rs has any threads, and answers with how the process ended.
DYING = """
import os, signal, sys
from upstream.sink.admin import erase as erasing
from upstream.sink.spec import steps

def die_at(moment):
    left = [moment]
    def count(*given):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    steps.reached = count
    for name in ("remove", "link"):
        def first(*given, real=getattr(os, name), **more):
            count()
            return real(*given, **more)
        setattr(os, name, first)

for moment in map(int, sys.stdin):
    child = os.fork()
    if child == 0:
        die_at(moment)
        erasing.erase_key(sys.argv[1], sys.argv[2], index_location=sys.argv[3])
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@pytest.mark.fault
def test_killed_anywhere_it_is_as_before_or_without_the_key(make_sink, tmp_path):
    sink = grown(make_sink, tmp_path)
    before = sink.latest()
    without = {other: row for other, row in before.items() if other != KEYS[1]}
    arguments = [sys.executable, "-c", DYING, str(sink.path), KEYS[1], sink.options["indexLocation"]]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdin is not None
        assert dying.stdout is not None
        for moment in range(1, 60):
            dying.stdin.write(f"{moment}\n")
            dying.stdin.flush()
            ended = int(dying.stdout.readline())
            assert sink.latest() in (before, without)
            assert check_table(str(sink.path)).healthy
            if ended == 0:
                break
            assert ended == -9
        dying.stdin.close()
    assert moment > 3, "it was killed at some"
    assert sink.latest() == without
    for place in ("table", "letters"):
        for file in (tmp_path / place).rglob("*.parquet"):
            os.utime(file, (time.time() - 30 * 86_400,) * 2)  # what the dead have left goes when it is old
        retire(tmp_path / place, days=3)
        retire(tmp_path / place, days=9)
        assert holders(tmp_path / place, KEYS[1]) == set()
    assert sink.latest() == without


VALUES: dict[str, tuple[pa.DataType, Any, str]] = {
    "whole number": (pa.int64(), -4711, "-4711"),
    "text with =": (pa.string(), "a=b", "a=b"),
    "binary": (pa.binary(), b"\x00\xff", "0x00ff"),
    "decimal": (pa.decimal128(10, 2), Decimal("-99.25"), "-99.25"),
    "day": (pa.date32(), dt.date(2024, 2, 29), "2024-02-29"),
    "time": (pa.timestamp("us", "UTC"), dt.datetime(2024, 2, 29, 10, tzinfo=dt.timezone.utc), "2024-02-29T10:00:00Z"),
    "time without a zone": (pa.timestamp("us"), dt.datetime(2024, 2, 29, 10), "2024-02-29 10:00:00"),
    "boolean": (pa.bool_(), True, "true"),
    "float": (pa.float64(), 0.1, "0.1"),
}


def cli(*given: Any) -> str:
    result = CliRunner().invoke(app, ["erase", *map(str, given)], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


@pytest.mark.parametrize("kind", VALUES)
def test_composite_and_nested_keys_of_any_type_from_the_command_line(tmp_path, kind):
    value_type, value, text = VALUES[kind]
    struct = pa.struct([("id", value_type), ("x", pa.int32())])
    columns = pa.schema([("s", struct), ("b", pa.int32()), ("t", pa.int64())])
    options = {"key": "s.id,b", "eventTime": "t", "buckets": "3", "indexLocation": str(tmp_path / "index")}
    sink = Sink(tmp_path, columns, options=options)
    sink.batch(0, [sink.rows([({"id": value, "x": 1}, number, 1) for number in range(4)])])
    output = cli(sink.path, "--key", "b=2", "--key", f"s.id={text}", "--index-location", tmp_path / "index")
    assert "erased: 1 rows, 0 rows marked as dead, 0 tombstones" in output
    assert "remains, until 20" in output
    assert sorted(sink.table().column("b").to_pylist()) == [0, 1, 3]
    assert erase_key(str(sink.path), value, 3, index_location=str(tmp_path / "index")).rows == 1


def test_what_is_no_key_is_refused(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 1, "x")])])
    version = sink.version()
    for wrong, match in [
        (["one"], "'one' is not a value of the key column 'k', which is int64"),
        (["1.5"], "is not a value"),
        (["k=1", "k=2"], "given twice"),
    ]:
        with pytest.raises(OptionError, match=match):
            cli(sink.path, *[part for each in wrong for part in ("--key", each)])
    with pytest.raises(TableError, match="there is no table"):
        cli(tmp_path / "none", "--key", "1")
    with pytest.raises(TableError, match="there is no table"):
        cli(sink.path, "--key", "2", "--output", tmp_path / "none")
    assert sink.version() == version


def test_the_bucket_of_a_key_is_where_its_rows_are(tmp_path):
    columns = pa.schema([("a", pa.decimal128(10, 2)), ("b", pa.string()), ("t", pa.int64())])
    sink = Sink(tmp_path, columns, options={"eventTime": "t", "buckets": "7", "key": "a,b"})
    keys = [(Decimal(value), other) for value in ("1.5", "-99.25") for other in ("", "a", "straße")]
    sink.batch(0, [sink.rows([(*key, 1) for key in keys])])
    found = {(row["a"], row["b"]): row["_upstream_bucket"] for row in pl.read_delta(str(sink.path)).to_dicts()}
    assert found == {key: upstream.LatestTable(sink.path).key_bucket(*key) for key in keys}
    assert len(set(found.values())) > 1


def test_what_is_no_key_has_no_bucket(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 1, "x")])])
    path = str(sink.path)
    with pytest.raises(OptionError, match=r"2 values for the key .* one each for k int64"):
        upstream.LatestTable(path).key_bucket(1, 2)
    for wrong in ("one", 1.5, 2**63, None):
        with pytest.raises(OptionError, match=r"is not a key .* types k int64"):
            upstream.LatestTable(path).key_bucket(wrong)
    with pytest.raises(TableError, match="there is no table"):
        upstream.LatestTable(tmp_path / "none").key_bucket(1)
