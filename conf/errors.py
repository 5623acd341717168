"""The package's errors. Every message has the problem, the expectation, and the remedy."""

from __future__ import annotations


class UpstreamError(Exception):
    """All errors that this package raises on purpose. Catch it to take any of them.

    Parameters
    ----------
    problem : str
        What was got, in one sentence.
    expected : str, optional
        What was expected instead.
    hint : str, optional
        What to do about it.

    Examples
    --------
    >>> try:
    ...     us.LatestTable("nowhere").check()
    ... except us.errors.UpstreamError as error:
    ...     print(type(error).__name__)
    TableError
    """

    def __init__(self, problem: str, *, expected: str = "", hint: str = "") -> None:
        self.problem = problem
        self.expected = expected
        self.hint = hint
        parts = [problem if problem.endswith(("?", "!")) else problem.rstrip(".") + "."]
        if expected:
            parts.append("Expected: " + expected.rstrip(".") + ".")
        if hint:
            parts.append("What to do: " + hint.rstrip(".") + ".")
        super().__init__(" ".join(parts))

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (task to driver); keyword-only arguments must survive that.
        return (_rebuild, (type(self), self.problem, self.expected, self.hint))


def _rebuild(cls: type[UpstreamError], problem: str, expected: str, hint: str) -> UpstreamError:
    return cls(problem, expected=expected, hint=hint)


class OptionError(UpstreamError, ValueError):
    """Options or arguments are unknown, missing, mistyped or contradictory. A ``ValueError``: correct the call."""


class QueryRefusedError(UpstreamError, ValueError):
    """A continuous query's text cannot be read, does not fit its streams, or would need unbounded state. A
    ``ValueError``: correct the text.

    ``line`` and ``column`` count from 1 and name the place; the message ends with that line and a caret below it.
    """

    def __init__(
        self, problem: str, *, expected: str = "", hint: str = "", line: int = 0, column: int = 0, excerpt: str = ""
    ) -> None:
        super().__init__(problem, expected=expected, hint=hint)
        self.line = line
        self.column = column
        self.excerpt = excerpt
        if line:
            self.args = (f"Line {line}, column {column}: {self.args[0]}\n{excerpt}",)

    def __reduce__(self) -> tuple[object, ...]:
        return (
            _rebuild_refused,
            (self.problem, self.expected, self.hint, self.line, self.column, self.excerpt),
        )


def _rebuild_refused(problem: str, expected: str, hint: str, line: int, column: int, excerpt: str) -> QueryRefusedError:
    return QueryRefusedError(problem, expected=expected, hint=hint, line=line, column=column, excerpt=excerpt)


class SchemaError(UpstreamError, TypeError):
    """A column is missing, has a type that does not fit, or a schema cannot be inferred. A ``TypeError``: correct the
    columns or the call.
    """


class MalformedRowError(UpstreamError, ValueError):
    """A row has no usable key or time, or cannot be read, and is to end the query (``onMalformed=fail``). A
    ``ValueError``.

    The message names the row's place. Correct the feed, or quarantine such rows: ``onMalformed=quarantine``.
    """


class QueryError(UpstreamError, ArithmeticError):
    """A value of a continuous query cannot be computed: an overflow, a division by zero, text that is no number. An
    ``ArithmeticError``.

    The message names the expression and the row's values. Use a ``try_`` form, which gives null, or leave such rows
    out.
    """


class FeedChangedError(UpstreamError, RuntimeError):
    """Input that the checkpoint records as read has disappeared, shrunk or changed: a file, a topic, a table. A
    ``RuntimeError``.

    Restore it, or start with a new checkpoint; a restart alone does not help.
    """


class CheckpointError(UpstreamError, RuntimeError):
    """A checkpoint belongs to another stream, cannot be read, or was put back to an earlier state. A ``RuntimeError``.

    Go back to the steps that the checkpoint was begun with, or start with a new one.
    """


class TableError(UpstreamError, RuntimeError):
    """A table is missing, of another layout, cannot be read or written, or another program has changed it. A
    ``RuntimeError``.

    If two writers meet, the later one is refused: repeat the call.
    """


class AggregateOverflowError(UpstreamError, OverflowError):
    """A sum or a mean does not fit its type. As in Spark's ANSI mode it never wraps. An ``OverflowError``: cast the
    column to a wider type.
    """


class StateLimitError(UpstreamError, RuntimeError):
    """An operator's state exceeds the limit that it was given. A ``RuntimeError``.

    Raise the limit, or choose that rows are dropped.
    """


class EnvironmentMissingError(UpstreamError, RuntimeError):
    """The machine or the Spark session lacks something: Java, a package, Delta's jars, room on a disk. A
    ``RuntimeError`` whose message names what to install.
    """
