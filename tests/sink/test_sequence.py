"""Rows of a key ordered by columns that are no event times: a log position, or several values, one after the other."""

import json

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from upstream.conf.errors import MalformedRowError, OptionError, SchemaError, TableError
from upstream.datasource.connectors.latest_table.table import describe
from upstream.sink.admin.check import check_table
from upstream.storage.folder import TableFolder

ENGINES = ("rewrite", "vectors")
PLACE = pa.struct([("file", pa.string()), ("pos", pa.int64())])
COLUMNS = pa.schema([("k", pa.int64()), ("source", PLACE), ("v", pa.string())])
BY_FIELDS = {"eventTime": "", "sequenceBy": "source.file,source.pos"}
CHANGE = st.tuples(st.integers(0, 3), st.sampled_from(["f.1", "f.10", "f.9"]), st.integers(0, 9), st.booleans())


def put(sink, number, changes):
    rows = [(key, {"file": file, "pos": pos}, f"{file}:{pos}") for key, file, pos, _ in changes]
    gone = np.array([change[3] for change in changes], dtype=bool)
    return sink.batch(number, [sink.rows(rows, seq=100 * number, deleted=gone)])


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(CHANGE, unique_by=lambda change: change[:3], min_size=1, max_size=12), cut=st.integers(0, 12))
@pytest.mark.parametrize("sequence", ["source.file,source.pos", "source"])
def test_the_largest_values_stay_however_rows_are_split(new_sink, sequence, changes, cut):
    sink = new_sink(COLUMNS, eventTime="", sequenceBy=sequence)
    for number, some in enumerate((changes[:cut], changes[cut:])):
        put(sink, number, some)
    last = {key: (file, pos, gone) for key, file, pos, gone in sorted(changes)}
    wanted = {key: f"{file}:{pos}" for key, (file, pos, gone) in last.items() if not gone}
    assert {key: row[-1] for key, row in sink.latest().items()} == wanted
    assert check_table(str(sink.path)).healthy


def test_several_rows_of_a_key_and_conflicts(make_sink):
    sink = make_sink(COLUMNS, **BY_FIELDS, history="latest 2")
    put(sink, 0, [(1, "f.1", 1, False), (1, "f.2", 1, False)])
    put(sink, 1, [(1, "f.1", 7, False)])
    assert sorted(row["v"] for row in sink.table().to_pylist()) == ["f.1:7", "f.2:1"]
    summary = sink.batch(2, [sink.rows([(1, {"file": "f.2", "pos": 1}, "other")], seq=200)])
    assert (summary.conflicts, summary.low_watermark) == (1, None)


def test_the_table_records_its_sequence(make_sink):
    sink = make_sink(COLUMNS, **BY_FIELDS)
    put(sink, 0, [(1, "f.1", 1, False)])
    recorded = json.loads(DeltaTable(sink.path).metadata().configuration["upstream.sequenceBy"])
    assert describe(TableFolder(str(sink.path))).sequence == tuple(recorded) == ("`source`.`file`", "`source`.`pos`")
    with pytest.raises(TableError, match="sequence"):
        make_sink(COLUMNS, eventTime="", query_id="query-2").writer()


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"eventTime": "source"}, SchemaError, "time column 'source' is of type struct.*sequence"),
        ({**BY_FIELDS, "sequenceBy": "gone"}, SchemaError, "sequenceBy column 'gone'"),
        ({**BY_FIELDS, "history": "all"}, OptionError, "sequenceBy needs a history other than all"),
        ({**BY_FIELDS, "tombstoneRetention": "1 day"}, OptionError, "tombstoneRetention"),
    ],
)
def test_what_cannot_order_rows_is_refused_in_words(make_sink, options, error, words):
    with pytest.raises(error, match=words):
        make_sink(COLUMNS, **options).writer()


def test_a_row_without_its_sequence_is_refused(make_sink):
    sink = make_sink(COLUMNS, **BY_FIELDS)
    with pytest.raises(MalformedRowError, match=r"1 of 1 rows have no usable sequence in the column .*pos"):
        sink.batch(0, [sink.rows([(1, {"file": "f", "pos": None}, "x")])])
