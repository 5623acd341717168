"""The package's errors. Every message has the problem, the expectation, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager

# Errors cross Python, Java and Python again as the last line of a traceback; Spark may add its own words after it.
_INNER = re.compile(r"(?:^|\s)upstream\.conf\.errors\.(\w+): (.+?)(?: SQLSTATE: \w+)?\s*$", re.MULTILINE)
_PARTS = re.compile(r"(.*?)(?: Expected: (.*?))?(?: What to do: (.*?))?", re.DOTALL)


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
        parts = [problem, f"Expected: {expected}" if expected else "", f"What to do: {hint}" if hint else ""]
        super().__init__(
            " ".join(each if each.endswith(("?", "!")) else each.rstrip(".") + "." for each in parts if each)
        )

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
    """A row has no usable key or time, or cannot be read, and the option lets it end the query (``onMalformed=fail``).
    A ``ValueError``.

    The message names the row's place. Correct the feed, or quarantine such rows: ``onMalformed=quarantine``.
    """


class QueryError(UpstreamError, ArithmeticError):
    """A value of a continuous query cannot be computed: an overflow, a division by zero, text that is not a number. An
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
    """A checkpoint belongs to another stream, cannot be read, or is an older copy. A ``RuntimeError``.

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


def pip_install(extra: str) -> str:
    """Return the command that installs the packages of an extra, without naming this package: no index has it yet."""
    from importlib.metadata import PackageNotFoundError, requires  # each worker imports this module

    try:
        requirements = [line.partition(";") for line in requires("pyspark-upstream") or ()]
    except PackageNotFoundError:  # shipped as a zip, without its metadata
        requirements = []
    packages = [name.strip() for name, _, marker in requirements if marker.strip() == f'extra == "{extra}"']
    return "pip install " + (" ".join(f"'{name}'" for name in packages) or f"'.[{extra}]'")


@contextmanager
def calling(what: str) -> Generator[None]:
    """Raise QueryError if a user's function, `what`, ends or interrupts the process."""
    try:
        yield
    except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
        raise QueryError(
            f"{what} raised {type(error).__name__}: {error}",
            expected="a function that returns, or raises an Exception",
        ) from error


@contextmanager
def needs_extra(name: str, what: str) -> Generator[None]:
    """Raise EnvironmentMissingError if an import for `what` fails, whose packages an extra of this name installs."""
    try:
        yield
    except ImportError as error:
        raise EnvironmentMissingError(
            f"{what} needs the extra `{name}`: {error}",
            hint=f"run `{pip_install(name)}` where the driver and the workers run",
        ) from error


def inner_error(error: BaseException) -> UpstreamError | None:
    """Return the last error of ours in the text of another program's error, if there is one."""
    found = _INNER.findall(str(error))
    kind = globals().get(found[-1][0]) if found else None
    parts = _PARTS.fullmatch(found[-1][1].strip()) if isinstance(kind, type) else None
    if parts is None or not isinstance(kind, type) or not issubclass(kind, UpstreamError):
        return None
    return kind(parts[1], expected=parts[2] or "", hint=parts[3] or "")
