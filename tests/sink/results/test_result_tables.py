"""Many tables in a batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.result_tables import Hosted

from upstream.conf.errors import TableError
from upstream.sink.results import result_tables as module


def test_each_table_has_its_rows_in_a_commit_of_its_own(hosted: Hosted) -> None:
    a, b, feed = hosted.table("a"), hosted.table("b", buckets=3), hosted.table("feed", key=(), keep="all")
    hosted.batch(0, [a, b, feed], {"a": [(1, "x"), (2, "y")], "b": [(key, "b") for key in range(20)]})
    made = hosted.batch(1, [a, b, feed], {"a": [(1, "x2")], "feed": [(7, "f"), (7, "f")]}, {"a": [2, 9]})
    assert set(made) == {"a", "feed"}
    assert hosted.rows(a) == [(1, "x2")]
    assert hosted.rows(b) == [(key, "b") for key in range(20)]
    assert hosted.rows(feed) == [(7, "f"), (7, "f")]
    assert [hosted.commits(table) for table in (a, b, feed)] == [2, 1, 2]
    assert (made["a"].delivered, made["a"].deleted, made["a"].absent, made["a"].keys) == (2, 1, 1, 1)


def test_a_query_with_an_empty_result_has_a_table(hosted: Hosted) -> None:
    a = hosted.table("a")
    assert hosted.batch(0, [a])["a"].keys == 0
    assert hosted.rows(a) == []
    assert DeltaTable(a.location).schema().to_arrow() is not None
    assert hosted.batch(0, [a]) == hosted.batch(1, [a]) == {}
    assert hosted.commits(a) == 1


def test_a_batch_without_rows_for_a_table_does_not_look_at_it(hosted: Hosted, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = hosted.table("a"), hosted.table("b")
    hosted.batch(0, [a, b], {"a": [(1, "x")]})
    results = hosted.results([a, b], {"a": [(1, "y")]})
    looked: list[str] = []
    monkeypatch.setattr(module, "known_table", _noting(looked, module.known_table))
    hosted.tables.commit([a, b], results, 1, None)
    assert set(looked) == {a.location}


def _noting(looked: list[str], known: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def note(target: Any) -> Any:
        looked.append(target.location)
        return known(target)

    return note


def test_several_refusals_are_one_error(hosted: Hosted) -> None:
    tables = [hosted.table(name) for name in ("a", "b", "c")]
    for table in tables[:2]:
        write_deltalake(table.location, pa.table({"k": [1]}))
    with pytest.raises(TableError, match="2 tables could not be committed: a, b; that of a: there is a table"):
        hosted.batch(0, tables)
    assert hosted.rows(tables[2]) == []


def test_many_threads_commit_the_same(tmp_path: Path) -> None:
    hosted = Hosted(tmp_path, threads=8)
    tables = [hosted.table(f"t{number}") for number in range(24)]
    for batch in range(3):
        hosted.batch(batch, tables, {table.name: [(batch, table.name)] for table in tables})
    for table in tables:
        assert hosted.rows(table) == [(batch, table.name) for batch in range(3)]
        assert hosted.commits(table) == 3


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_batches_repeats_restarts_and_beginnings(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    hosted = Hosted(tmp_path_factory.mktemp("any"))
    names = ("a", "b", "c")
    model: dict[str, dict[int, str]] = {name: {} for name in names}
    incarnation = dict.fromkeys(names, 1)
    for number in range(data.draw(st.integers(1, 6))):
        tables, rows, deleted = [], {}, {}
        for name in names:
            if data.draw(st.integers(0, 4)) == 0:
                incarnation[name] += 1
                model[name] = {}
            tables.append(hosted.table(name, incarnation[name], buckets=2))
            keys = data.draw(st.sets(st.integers(0, 5)))
            gone = data.draw(st.sets(st.integers(0, 5))) - keys
            rows[name], deleted[name] = [(key, f"{number}") for key in sorted(keys)], sorted(gone)
            model[name] = {key: value for key, value in model[name].items() if key not in gone}
            model[name] |= dict(rows[name])
        for _ in range(data.draw(st.integers(1, 2))):
            if data.draw(st.booleans()):
                hosted.restart()
            hosted.batch(number, tables, rows, deleted)
            assert {table.name: dict(hosted.rows(table)) for table in tables} == model
