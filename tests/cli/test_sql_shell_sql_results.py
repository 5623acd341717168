import polars as pl
import pytest
from rich.console import Console

from upstream.cli.sql_shell import changes, grid, snapshot


def test_rows_go_and_come_each_as_often_as_it_does_in_order():
    assert changes(None, pl.DataFrame({"k": [2, 1]})) == [("+", (1,)), ("+", (2,))]
    before = pl.DataFrame({"k": [1, 1, 2, 3], "v": [None, None, 5.0, 7.0]})
    after = pl.DataFrame({"k": [1, 2, 3, 3], "v": [None, 6.0, 7.0, 7.0]})
    assert changes(before, after) == [
        ("-", (1, None)),
        ("-", (2, 5.0)),
        ("+", (2, 6.0)),
        ("+", (3, 7.0)),
    ]
    frame = pl.DataFrame({"v": [float("nan"), 1.0, None, float("inf")]})
    assert [str(row[0]) for _, row in changes(None, frame)] == ["None", "1.0", "inf", "nan"]


@pytest.mark.parametrize("value", [float("nan"), None, [1, 2], {"a": 1}, b"x"])
def test_what_stays_is_no_change_whatever_its_type(value):
    frame = pl.DataFrame({"v": pl.Series([value])})
    assert changes(frame, frame.clone()) == []
    assert len(changes(None, frame)) == 1


def test_a_long_result_is_cut_and_says_so():
    console = Console(width=40)
    with console.capture() as shown:
        console.print(grid(pl.DataFrame({"k": [3, 1, 2]}), 2))
    assert shown.get().split() == ["k", "1", "2", "2", "of", "3", "rows"]
    with console.capture() as shown:
        console.print(grid(pl.DataFrame({"k": [3, 1, 2]}), 3))
    assert "of" not in shown.get()


def test_a_table_is_read_when_it_has_a_new_version(tmp_path):
    location = str(tmp_path / "table")
    assert snapshot(location, -1) is None
    pl.DataFrame({"row_key": ["1"], "k": [1], "_upstream_bucket": [0]}).write_delta(location)
    found = snapshot(location, -1, "row_key")
    assert found is not None
    version, rows = found
    assert (version, rows.rows()) == (0, [(1,)])
    assert snapshot(location, 0) is None
    pl.DataFrame({"row_key": ["2"], "k": [2], "_upstream_bucket": [0]}).write_delta(location, mode="append")
    found = snapshot(location, 0)
    assert found is not None
    assert sorted(found[1].rows()) == [("1", 1), ("2", 2)]
