import json

import pyarrow as pa
import pytest

from upstream.conf.errors import CheckpointError
from upstream.operators.joins.plan import JoinSide, check_columns, columns_to_json

LEFT = pa.schema([("k", pa.int64()), ("t", pa.int64())])
RIGHT = pa.schema([("k", pa.int64()), ("t", pa.int64()), ("b", pa.string())])


def sides(left=LEFT, right=RIGHT):
    return JoinSide(("k",), "t", left), JoinSide(("k",), "t", right)


def saved():
    return json.loads(json.dumps(columns_to_json(sides())))


@pytest.mark.parametrize(
    ("left", "right", "kept"),
    [
        (LEFT, RIGHT, (1, 1)),
        (LEFT.append(pa.field("new", pa.int64())), RIGHT, (1, 1)),
        (LEFT.with_metadata({"pandas": "x"}), RIGHT, (1, 1)),
        (LEFT, RIGHT.remove(2), (1, 0)),  # no row is kept
    ],
)
def test_the_same_columns_and_more_are_taken_and_others_where_no_row_is_kept(left, right, kept):
    check_columns(sides(left, right), saved(), kept)


@pytest.mark.parametrize(
    ("right", "shown"),
    [(RIGHT.remove(2), "k int64, t int64"), (RIGHT.set(2, pa.field("b", pa.int64())), "k int64, t int64, b int64")],
)
def test_a_column_that_is_gone_or_of_another_type_is_refused(right, shown):
    with pytest.raises(CheckpointError) as refused:
        check_columns(sides(right=right), saved(), (0, 1))
    for part in ("right", "k int64, t int64, b string", f"now there are {shown}"):
        assert part in str(refused.value)
