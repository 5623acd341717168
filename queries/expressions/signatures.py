"""Functions with fixed argument and result types, and the error of a misfitting call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ...conf.errors import SchemaError
from .coercion import implicit
from .kinds import spark_name
from .nodes import Call, Expression

__all__ = ["Rule", "Signature", "misfit"]

Rule = Callable[[str, Sequence[Expression]], Expression]
"""Returns the call with casts, from a function's name and its arguments in Spark's own types."""


def misfit(function: str, arguments: Sequence[Expression], expected: str, hint: str = "") -> SchemaError:
    """Return the error of a function that does not take these arguments."""
    given = ", ".join(f"{each} ({spark_name(each.type)})" for each in arguments)
    return SchemaError(f"{function} does not take ({given})", expected=expected, hint=hint)


@dataclass(frozen=True)
class Signature:
    """The rule of a function with fixed argument and result types."""

    result: pa.DataType
    takes: tuple[pa.DataType, ...]
    optional: int = 0  # number of trailing arguments that may be omitted
    name: str = ""  # the canonical name, if the function is an alias

    def __call__(self, function: str, arguments: Sequence[Expression]) -> Expression:
        """Return the call with casts; raise SchemaError if the arguments do not fit."""
        if not len(self.takes) - self.optional <= len(arguments) <= len(self.takes):
            raise misfit(function, arguments, self.written(function))
        made = [implicit(value, dtype) for value, dtype in zip(arguments, self.takes, strict=False)]
        if None in made:
            raise misfit(function, arguments, self.written(function))
        return Call(self.name or function, tuple(each for each in made if each is not None), self.result)

    def written(self, function: str) -> str:
        """Return the function with its argument types, for the documentation."""
        needed = len(self.takes) - self.optional
        text = ", ".join(map(spark_name, self.takes[:needed]))
        for each in self.takes[needed:]:
            text += f"[, {spark_name(each)}]" if text else f"[{spark_name(each)}]"
        return f"{function}({text})"
