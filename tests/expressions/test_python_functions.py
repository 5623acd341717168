"""Functions in Python get whole columns, give whole columns, and fail by an error of the query."""

import polars as pl
import pyarrow as pa
import pytest
from kit import python_functions
from pyspark import TaskContext

from upstream.conf.deep_stack import on_deep_stack
from upstream.conf.errors import OptionError, QueryError, SchemaError
from upstream.expressions.compile import compiled, compiled_columns
from upstream.expressions.nodes import Call, Constant, Expression, Field
from upstream.expressions.python_functions import PythonFunction
from upstream.expressions.types import call

ROWS = pl.DataFrame({"x": [1.5, None, -2.0], "n": [1, 2, None], "s": ["a", None, "c"]})
SCHEMA = pa.schema({"x": pa.float64(), "n": pa.int64(), "s": pa.string()})
X, N, S = (Field(each.name, each.type) for each in SCHEMA)


def declared(name: str, returns: pa.DataType | None = None, **parameters: pa.DataType) -> PythonFunction:
    schema = pa.schema(parameters or {"x": pa.float64()})
    return PythonFunction("f", schema, returns or pa.float64(), f"kit.python_functions:{name}")


DOUBLED = declared("doubled")


def values(expression: Expression) -> list[object]:
    return compiled(expression, SCHEMA).evaluate(ROWS).to_list()


@pytest.mark.parametrize(
    ("expression", "found"),
    [
        (DOUBLED.call([X]), [3.0, None, -4.0]),
        (DOUBLED.call([N]), [2.0, 4.0, None]),
        (DOUBLED.call([Constant(4, pa.int32())]), [8.0, 8.0, 8.0]),
        (call("gt", [DOUBLED.call([DOUBLED.call([X])]), Constant(0, pa.int32())]), [True, None, False]),
        (declared("labelled", pa.string(), s=pa.string(), n=pa.int32()).call([S, Constant(7, pa.int32())]),
         ["a7", "None7", "c7"]),
        (declared("Functions.same", pa.decimal128(5, 2)).call([X]), None),
        (declared("Functions.same", pa.int64(), x=pa.int32()).call([Constant(None, pa.null())]), [None] * 3),
    ],
)  # fmt: skip
def test_a_function_gets_columns_with_nulls_and_gives_a_column(expression, found):
    if found is None:
        found = [1.5, None, -2]
    assert values(expression) == found
    assert compiled(expression, SCHEMA).evaluate(ROWS).dtype == compiled(expression, SCHEMA).evaluate(ROWS[:0]).dtype


def test_a_call_is_evaluated_once_in_all_columns_that_have_it():
    python_functions.ROWS.clear()
    both = compiled_columns([("a", DOUBLED.call([X])), ("b", call("negate", [DOUBLED.call([X])]))], SCHEMA)
    assert both.evaluate(ROWS)["b"].to_list() == [-3.0, None, 4.0]
    assert python_functions.ROWS == [3]


def test_a_failing_argument_fails_beside_a_null():
    failing = call("divide", [Constant(1, pa.int32()), call("subtract", [N, Constant(1, pa.int32())])])
    function = declared("labelled", pa.string(), a=pa.float64(), b=pa.float64())
    with pytest.raises(QueryError, match="division by zero"):
        values(function.call([X, failing]))
    with pytest.raises(QueryError, match="division by zero"):
        values(function.call([Constant(None, pa.null()), failing]))


@pytest.mark.parametrize(
    ("name", "returns", "message"),
    [
        ("broken", pa.float64(), r"broken\(x\) failed: OSError: no model for 3 rows"),
        ("shortened", pa.float64(), "returned 2 values.*3, one for each row"),
        ("Functions.same", pa.int64(), "failed: ArrowInvalid.*truncated"),
        ("Functions.same", pa.list_(pa.int64()), "failed: Arrow"),
        ("exits", pa.float64(), r"exits\(x\) failed: SystemExit: 3"),
        ("no_text", pa.string(), "failed: ArrowInvalid: Invalid UTF8"),
    ],
)
def test_an_error_of_a_function_is_one_of_the_query(name, returns, message):
    """Also an OSError: one of a disk of the job would repeat the batch for ever."""
    with pytest.raises(QueryError, match=message):
        values(declared(name, returns).call([X]))


def test_an_interrupt_is_a_persons_in_the_main_thread_alone():
    """Spark's workers evaluate on a deep stack, which is a thread of its own."""
    interrupting = declared("interrupts").call([X])
    with pytest.raises(QueryError, match=r"interrupts\(x\) failed: KeyboardInterrupt"):
        on_deep_stack(lambda: values(interrupting))
    with pytest.raises(KeyboardInterrupt):
        values(interrupting)


def test_a_function_that_kills_its_process_fails_when_spark_repeats_the_task(monkeypatch):
    """Its first call kills Spark's worker, and Spark repeats the task."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    TaskContext()._attemptNumber = 1
    assert values(DOUBLED.call([X])) == [3.0, None, -4.0]
    with pytest.raises(QueryError, match=r"dies\(x\) failed: its process was killed by SIGKILL"):
        values(declared("dies").call([X]))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "cannot be imported: AttributeError"),
        ("NOT_ONE", "is a int.*a function"),
        ("labelled", r"is a function of \(text.*missing a required argument.*takes 1 array, as f"),
    ],
)
def test_what_is_no_such_function_is_refused(name, message):
    with pytest.raises(OptionError, match=message):
        declared(name).check()
    DOUBLED.check()


@pytest.mark.parametrize(
    ("code", "error"), [("open('/no/model')", "FileNotFoundError"), ("raise SystemExit(3)", "SystemExit: 3")]
)
def test_a_module_that_fails_is_refused_where_it_is_evaluated_too(tmp_path, monkeypatch, code, error):
    (tmp_path / "no_model.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    function = PythonFunction("f", pa.schema({"x": pa.float64()}), pa.float64(), "no_model:f")
    made = function.call([X])
    assert made == Call("python no_model:f", (X,), pa.float64())
    for asked in (function.check, lambda: values(made)):
        with pytest.raises(OptionError, match=f"'no_model:f' cannot be imported: {error}"):
            asked()


def test_arguments_that_do_not_fit_are_refused():
    with pytest.raises(SchemaError, match=r"f\(DOUBLE\)"):
        DOUBLED.call([X, X])
    with pytest.raises(SchemaError, match=r"f\(DOUBLE\)"):
        DOUBLED.call([Field("t", pa.timestamp("us", "UTC"))])
