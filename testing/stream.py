"""An update stream of rows from a program, for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from ..conf.errors import OptionError
from ..datasource.ddl import arrow_schema
from ..operators.stream import UpdateStream
from ..plan.nodes import Given, walk
from .expressions import RowEvaluation, value_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from ..plan.nodes import Node
    from ..plan.row_steps import RowStep

__all__ = ["GivenStream"]


class GivenStream(UpdateStream):
    """An update stream whose steps need no session: this class computes what Spark would."""

    def write(self, *args: object, **options: object) -> NoReturn:
        """Refuse to write: a tested stream has no table."""
        del args, options
        raise OptionError(
            "write(…) inside the steps that are tested",
            expected="what the job has between read and write",
            hint="return the stream; tester.latest() gives what the table would hold",
        )

    def _bound(self, plan: Node, checkpoint: str | None) -> NoReturn:
        """Refuse to bind: a tested stream has no DataFrame."""
        del plan, checkpoint
        raise OptionError(
            "a tested stream has no DataFrame",
            expected="steps of the stream",
            hint="leave what needs the DataFrame out of the function that you give to StreamTester",
        )

    def _table(self, path: str, storage: object) -> tuple[str, pa.Schema]:
        del storage
        tables = next((each.tables for each in walk(self.plan) if isinstance(each, Given)), {})
        if path not in tables:
            raise OptionError(
                f"join_table({path!r}), and the test has no such table",
                expected="a table for each that the steps join: " + (", ".join(tables) or "none is given"),
                hint="give it to the tester: StreamTester(…, tables={path: rows})",
            )
        return path, tables[path]

    def _arrow(self) -> pa.Schema:
        from pyspark.sql.pandas.types import to_arrow_schema

        return to_arrow_schema(self.schema, timezone="UTC")

    def _after(self, step: RowStep) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(RowEvaluation(step, self._arrow(), self.plan.fixed).schema)

    def _check_expression(self, text: str) -> None:
        value_of(text, self._arrow())

    def _parsed(self, ddl: str) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(arrow_schema(ddl))
