"""Values and failures of expressions over Arrow rows: by Arrow alone where it can, else by Polars."""

import pickle

import pyarrow as pa
import pytest
from kit.programs import run_python

from upstream.conf.errors import OptionError
from upstream.expressions.bind import OptionText, bind_columns
from upstream.expressions.evaluate import RowEvaluator

ROWS = pa.table({"a": [1, 0, None], "s": ["1", "x", None], "deep": [{"b": 1.5}, {"b": None}, None]})


def evaluator(sql: str) -> RowEvaluator:
    columns = bind_columns(OptionText(sql, "select"), ROWS.schema)
    return RowEvaluator([(each.name, each.expression) for each in columns], ROWS.schema)


def test_values_are_null_where_they_fail_and_rows_need_only_what_is_read():
    made = pickle.loads(pickle.dumps(evaluator("deep.b, 1 / a AS q, s::INT AS n, 'x' AS c, a > 0 AS p")))
    assert made.reads == ["a", "s", "deep"]
    values, failed = made.evaluate(ROWS)
    assert {name: each.to_pylist() for name, each in values.items()} == {
        "b": [1.5, None, None],
        "q": [1.0, None, None],
        "n": [1, None, None],
        "c": ["x"] * 3,
        "p": [True, False, None],
    }
    assert {name: mask.tolist() for name, mask in failed.items()} == {
        "q": [False, True, False],
        "n": [False, True, False],
    }
    values, failed = evaluator("3 AS three").evaluate(ROWS)
    assert (values["three"].to_pylist(), failed) == ([3, 3, 3], {})
    assert evaluator("s::INT AS n").evaluate(ROWS.slice(0, 0))[0]["n"].type == pa.int32()


def test_what_no_row_has_a_value_of_is_refused():
    with pytest.raises(OptionError, match="no row has a value"):
        evaluator("'x'::INT AS n").check(OptionText("'x'::INT AS n", "select"))
    evaluator("CASE WHEN a = 7 THEN 'x'::INT END AS n").check(OptionText("", "select"))


_LIGHT = """
import pickle, sys
evaluator, rows = pickle.load(open(sys.argv[1], "rb"))
print(evaluator.evaluate(rows)[0]["p"].to_pylist(), sorted({"polars", "sqlglot"} & set(sys.modules)))
"""


@pytest.mark.parametrize(("sql", "imported"), [("a > 0 AND deep.b < 2 AS p", []), ("a + 1 > 1 AS p", ["polars"])])
def test_a_worker_imports_no_parser_and_polars_only_where_arrow_does_not_do(tmp_path, sql, imported):
    (tmp_path / "it").write_bytes(pickle.dumps((evaluator(sql), ROWS)))
    done = run_python(_LIGHT, tmp_path / "it")
    assert done.stdout.strip() == f"[True, False, None] {imported}"
