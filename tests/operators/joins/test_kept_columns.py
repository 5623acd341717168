"""Columns of kept rows: a job that resumes may have more of them, and no others."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from upstream.conf.errors import CheckpointError
from upstream.operators.joins.kept_columns import check_columns, columns_to_json
from upstream.operators.joins.plan import JoinSide

LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("b", pa.string())])


def sides(left=LEFT, right=RIGHT):
    return JoinSide(("k",), "t", left), JoinSide(("k",), "t", right)


def saved(*schemas):
    return json.loads(json.dumps(columns_to_json(sides(*schemas))))


def test_the_same_columns_and_more_are_taken():
    check_columns(sides(), saved(), (1, 1))
    check_columns(sides(left=LEFT.append(pa.field("new", pa.int64()))), saved(), (1, 1))


@pytest.mark.parametrize(
    ("right", "shown"),
    [
        (RIGHT.remove(2), "k int64, t int64"),
        (RIGHT.set(2, pa.field("b", pa.int64())), "k int64, t int64, b int64"),
    ],
)
def test_a_column_that_is_gone_or_of_another_type_is_refused(right, shown):
    with pytest.raises(CheckpointError) as refused:
        check_columns(sides(right=right), saved(), (0, 1))
    message = str(refused.value)
    assert "rows of the right" in message
    assert "k int64, t int64, b string" in message
    assert f"now there are {shown}" in message


def test_other_columns_are_taken_where_no_row_is_kept():
    check_columns(sides(right=RIGHT.remove(2)), saved(), (1, 0))


def test_metadata_of_columns_is_no_difference():
    noted = LEFT.with_metadata({"pandas": "x"})
    assert columns_to_json(sides(left=noted)) == columns_to_json(sides())
