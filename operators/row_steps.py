"""Steps on single rows, as a plan has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from ..conf.errors import OptionError, SchemaError
from ..conf.options import column_argument, count_argument
from ..core.rows.system_column import SYSTEM
from ..plan.nodes import Choice, Filter, IncompleteInput, Map, Node
from ..plan.properties import check_final, coalesces
from .runtime.steps import mapped

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column
    from pyspark.sql.types import StructType


def filter_step(
    plan: Node, condition: str | Column, on_leave: Literal["keep", "delete"] | None
) -> tuple[Filter, IncompleteInput | None]:
    """Return a filter of a plan's rows, and why rows are missing after it, if it adds a reason."""
    changes = plan.retracts
    asked: str | None = on_leave
    if asked is None:
        on_leave = "delete" if changes else "keep"
    if on_leave not in ("keep", "delete"):
        raise OptionError(
            f"on_leave={on_leave!r}",
            expected="'keep' or 'delete'",
            hint="keep drops the row and lets the earlier result stay, delete takes the key out of the table",
        )
    if column_argument("where", condition) is None:
        raise OptionError("where(None)", expected="a condition in SQL, or a column")
    if on_leave == "keep":
        check_final(plan, 'where(…, on_leave="keep")', "would keep results that no longer hold", "leave on_leave out")
        # In its batch, a newer row that fails may have replaced one that passes.
        if coalesces(plan):
            raise OptionError(
                f"where({str(condition)!r}) behind a source that coalesces: what it lets on depends on the batches",
                expected="the filter before coalescing",
                hint='give the condition to the source, read(…, where="…"); or, where the newest row is to decide, '
                'say where(…, on_leave="delete")',
            )
    if on_leave == "keep" or changes:
        return Filter(condition, on_leave), None
    return Filter(condition, on_leave), IncompleteInput(
        'where(…, on_leave="delete") makes tombstones of rows, which have no values',
        'filter with on_leave="keep" before a window, or count each key once by group_by(…).window(…)',
    )


def choice_step(columns: Sequence[str | Column]) -> Choice:
    """Return a choice of columns."""
    if any(column_argument("select", each) is None for each in columns):
        raise OptionError("select(None)", expected="names of columns, SQL, or columns")
    return Choice(tuple(columns))


def check_choice(before: Node, after: StructType) -> None:
    """Refuse to compute the key, the time or the system column again."""
    clash = [name for name in before.fixed if after.names.count(name) > 1]
    if clash:
        raise SchemaError(
            f"{', '.join(clash)} would be computed again, and is the stream's key, time or system column",
            expected="new columns under other names: the key and the time of a row do not change",
            hint="rename the column, or begin a new stream with UpdateStream(df, key=…, event_time=…)",
        )


def map_rows(
    plan: Node,
    function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table],
    new: StructType,
    batch_rows: int,
) -> Map:
    """Return a plan whose rows have the columns `new`, which `function` computes, besides the fixed ones."""
    from pyspark.sql.pandas.types import to_arrow_schema
    from pyspark.sql.types import StructField, StructType

    if not callable(function):
        raise OptionError(f"map({function!r})", expected="a function over Arrow batches")
    if not isinstance(new, StructType):  # pyright: ignore[reportUnnecessaryIsInstance] whatever was given
        raise OptionError(f"schema={new!r}", expected="the new columns, such as 'score DOUBLE', or a StructType")
    count_argument("batch_rows", batch_rows)
    fixed = plan.fixed
    clash = [field.name for field in new if field.name in fixed]
    if clash:
        raise SchemaError(
            f"the map would give {', '.join(clash)}, which is the stream's key, time or system column",
            expected="new columns only: a map may not change what a row updates, or when",
            hint="leave it out of the schema; it is kept as it is",
        )
    kept = [field for field in plan.schema if field.name in fixed and field.name != SYSTEM]
    # Punctuation has null in new columns, even if the schema rules nulls out.
    computed = [StructField(field.name, field.dataType, nullable=True, metadata=field.metadata) for field in new]
    schema = StructType([*kept, *computed, plan.schema[SYSTEM]])
    step = mapped(function, to_arrow_schema(schema, timezone="UTC"), [field.name for field in new], batch_rows)
    return Map(
        plan.key, plan.time, schema, plan.left_out, plan.in_order, plan.shards,
        inputs=(plan,), says=f"map {getattr(function, '__qualname__', type(function).__name__)}", step=step,
    )  # fmt: skip
