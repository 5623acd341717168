"""Functions that take and give fixed types, and the error of a call that does not fit."""

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
"""From a function's name and its arguments, in Spark's own types, to the call with casts."""


def misfit(function: str, arguments: Sequence[Expression], expected: str, hint: str = "") -> SchemaError:
    """Return the error of a function that does not take these arguments."""
    given = ", ".join(f"{each} ({spark_name(each.type)})" for each in arguments)
    return SchemaError(f"{function} does not take ({given})", expected=expected, hint=hint)


@dataclass(frozen=True)
class Signature:
    """The rule of a function that takes and gives fixed types.

    Attributes
    ----------
    result : pa.DataType
        The type of its values.
    takes : tuple of pa.DataType
        The types of its arguments.
    optional : int
        How many of the last arguments may be left out.
    name : str
        The canonical name, if the function is another name for it.

    Examples
    --------
    >>> from .kinds import INT, TEXT
    >>> print(Signature(TEXT, (TEXT, INT, INT), optional=1).written("substring"))
    substring(STRING, INT[, INT])
    """

    result: pa.DataType
    takes: tuple[pa.DataType, ...]
    optional: int = 0
    name: str = ""

    def __call__(self, function: str, arguments: Sequence[Expression]) -> Expression:
        """Return the call with casts.

        Raises
        ------
        SchemaError
            The arguments do not fit.
        """
        if not len(self.takes) - self.optional <= len(arguments) <= len(self.takes):
            raise misfit(function, arguments, self.written(function))
        made = [implicit(value, dtype) for value, dtype in zip(arguments, self.takes, strict=False)]
        if None in made:
            raise misfit(function, arguments, self.written(function))
        return Call(self.name or function, tuple(each for each in made if each is not None), self.result)

    def written(self, function: str) -> str:
        """Return the function with the types that it takes, as the documentation has it."""
        needed = len(self.takes) - self.optional
        text = ", ".join(map(spark_name, self.takes[:needed]))
        for each in self.takes[needed:]:
            text += f"[, {spark_name(each)}]" if text else f"[{spark_name(each)}]"
        return f"{function}({text})"
