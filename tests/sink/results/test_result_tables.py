"""Many tables in a batch."""

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.result_tables import Hosted

from upstream.conf.errors import TableError


def test_a_batch_without_rows_for_a_table_does_not_look_at_it(hosted):
    a, b = hosted.table("a"), hosted.table("b")
    assert hosted.batch(0, [a, b], {"a": [(1, "x")]})["b"].keys == 0, "an empty result is a table"
    assert hosted.batch(0, [a, b], {"a": [(1, "x")]}) == {}
    results = hosted.results([a, b], {"a": [(1, "y")]})
    shutil.rmtree(b.location)
    assert hosted.tables.commit([a, b], results, 1, None).keys() == {"a"}
    assert not Path(b.location).exists()


def test_several_refusals_are_one_error(hosted):
    tables = [hosted.table(name) for name in ("a", "b", "c")]
    for table in tables[:2]:
        write_deltalake(table.location, pa.table({"k": [1]}))
    with pytest.raises(TableError, match="2 tables could not be committed: a, b; that of a: there is a table"):
        hosted.batch(0, tables)
    assert hosted.rows(tables[2]) == []


def test_many_threads_commit_the_same(tmp_path):
    hosted = Hosted(tmp_path, threads=8)
    tables = [hosted.table(f"t{number}") for number in range(24)]
    for batch in range(3):
        hosted.batch(batch, tables, {table.name: [(batch, table.name)] for table in tables})
    for table in tables:
        assert hosted.rows(table) == [(batch, table.name) for batch in range(3)]
        assert hosted.commits(table) == 3


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_batches_repeats_restarts_and_beginnings(tmp_path_factory, data):
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
