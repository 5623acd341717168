"""The one error tree. Every message says what was got, what was expected, and what to do."""

from __future__ import annotations

__all__ = [
    "AggregateOverflowError",
    "CheckpointError",
    "EnvironmentMissingError",
    "FeedChangedError",
    "MalformedRowError",
    "OptionError",
    "SchemaError",
    "TableError",
    "UpstreamError",
]


class UpstreamError(Exception):
    """Root of all errors that this package raises on purpose.

    Parameters
    ----------
    problem : str
        What was got, in one sentence.
    expected : str, optional
        What was expected instead.
    hint : str, optional
        What to do about it.
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
    """One or more options are unknown, missing, mistyped or contradict each other."""


class SchemaError(UpstreamError, TypeError):
    """A schema cannot be inferred, or does not fit what is asked of it."""


class MalformedRowError(UpstreamError, ValueError):
    """A row cannot be read and `onMalformed=fail`."""


class FeedChangedError(UpstreamError, RuntimeError):
    """What a recorded offset refers to has disappeared, shrunk or changed its schema."""


class CheckpointError(UpstreamError, RuntimeError):
    """A checkpoint was written by another source, schema or layout."""


class TableError(UpstreamError, RuntimeError):
    """The target table does not fit, or somebody else has changed what was to be replaced."""


class AggregateOverflowError(UpstreamError, OverflowError):
    """A result does not fit its type. As in Spark's ANSI mode it is an error, and never wraps."""


class EnvironmentMissingError(UpstreamError, RuntimeError):
    """Something the machine or the Spark session must have is absent."""
