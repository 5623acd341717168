"""Typed options: dataclass fields made by :func:`option`, and checks of public arguments by the same rules."""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from typing import Any, TypeVar, get_args

from .errors import OptionError
from .units import parse_bytes, parse_duration_us

T = TypeVar("T")
Group = TypeVar("Group")


@dataclasses.dataclass(frozen=True)
class OptionDoc:
    """The entry of one option in the options reference."""

    name: str  # in camelCase, as the user writes it
    expected: str  # the type in words
    default: object
    doc: str


@dataclasses.dataclass(frozen=True)
class _Parser:
    expected: str
    parse: Callable[[str], Any]


def option(name: str, parser: _Parser, default: T, doc: str) -> T:
    """Declare one option as a dataclass field; `doc` is its text in the reference."""
    meta = {"parser": parser, "doc": OptionDoc(name, parser.expected, default, doc)}
    return dataclasses.field(default=default, metadata=meta)


def text() -> _Parser:
    """Return a parser for any non-empty text."""
    return _Parser("text", non_empty)


def one_of(*choices: str) -> _Parser:
    """Return a parser for one of the given words, in any case."""

    def parse(value: str) -> str:
        lowered = value.strip().lower()
        if lowered not in choices:
            near = difflib.get_close_matches(lowered, choices, n=1)
            raise ValueError(f"did you mean {near[0]!r}?" if near else "")
        return lowered

    return _Parser("one of " + ", ".join(choices), parse)


def boolean() -> _Parser:
    """Return a parser for true or false (also on/off, yes/no, 1/0)."""
    words = {"true": True, "on": True, "yes": True, "1": True, "false": False, "off": False, "no": False, "0": False}
    return _Parser("true or false", lambda value: words[value.strip().lower()])


def whole(minimum: int = 0) -> _Parser:
    """Return a parser for a whole number of at least `minimum`."""
    return _Parser(f"a whole number of at least {minimum}", lambda value: _at_least(int(value), minimum))


def positive_int() -> _Parser:
    """Return a parser for a whole number of at least 1."""
    return whole(1)


def positive_float() -> _Parser:
    """Return a parser for a finite number above 0."""

    def parse(value: str) -> float:
        number = float(value)
        if not 0 < number < float("inf"):
            raise ValueError
        return number

    return _Parser("a number above 0", parse)


def fraction() -> _Parser:
    """Return a parser for a number from 0 to 1."""

    def parse(value: str) -> float:
        number = float(value)
        if not 0 <= number <= 1:
            raise ValueError
        return number

    return _Parser("a number from 0 to 1", parse)


def share() -> _Parser:
    """Return a parser for a share above 0 and below 1, as a number or in percent."""

    def parse(value: str) -> float:
        number, percent, rest = value.partition("%")
        parsed = float(number) / (100 if percent else 1)
        if rest.strip() or not 0 < parsed < 1:
            raise ValueError
        return parsed

    return _Parser("a share above 0 and below 1, such as 0.001 or '0.1 %'", parse)


def numbers() -> _Parser:
    """Return a parser for finite numbers of at least 0, separated by commas."""

    def parse(value: str) -> tuple[float, ...]:
        parsed = tuple(float(part) for part in value.split(","))
        if not all(0 <= number < float("inf") for number in parsed):
            raise ValueError
        return parsed

    return _Parser("numbers of at least 0, separated by commas", parse)


def duration_us() -> _Parser:
    """Return a parser that reads a duration such as ``10 minutes`` into microseconds."""
    return _Parser("a duration such as '10 minutes' or '250 ms'", parse_duration_us)


def bytes_() -> _Parser:
    """Return a parser that reads a size such as ``32 MB``, at least 1 byte, into bytes."""
    return _Parser("a size such as '32 MB'", lambda value: _at_least(parse_bytes(value), 1))


def parsed(expected: str, parse: Callable[[str], Any]) -> _Parser:
    """Return a parser that calls `parse`, which raises `ValueError` unless the text is as `expected` describes."""
    return _Parser(expected, parse)


def python_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that are given as Python arguments under their own names: ``time_format`` is ``timeFormat``."""
    return {re.sub(r"_([a-z])", lambda found: found[1].upper(), name) if "." not in name else name: value
            for name, value in given.items()}  # fmt: skip


def documented(*groups: type) -> list[OptionDoc]:
    """Return the documentation of all options of the groups, in the order of declaration."""
    return [field.metadata["doc"] for group in groups for field in _fields(group)]


def parse_options(
    given: Mapping[str, str],
    groups: Sequence[type[Group]],
    *,
    elsewhere: Mapping[str, str] | None = None,
    ignored: Sequence[str] = (),
    ignored_prefixes: Sequence[str] = (),
) -> list[Group]:
    """Parse the user's options into one instance of each group; raise one OptionError for all problems.

    `elsewhere` maps lower-case names of options that do not apply here to the reason. `ignored` are names that Spark
    adds. `ignored_prefixes` (lower-case) belong to other readers.
    """
    known = {field.metadata["doc"].name.lower(): (group, field) for group in groups for field in _fields(group)}
    skipped = {name.lower() for name in ignored}
    values: dict[type, dict[str, Any]] = {group: {} for group in groups}
    problems: list[str] = []
    for name, value in given.items():
        lowered = name.lower()
        if lowered in known:
            group, field = known[lowered]
            doc: OptionDoc = field.metadata["doc"]
            try:
                values[group][field.name] = field.metadata["parser"].parse(value)
            except (ValueError, KeyError) as error:
                detail = f" ({error})" if isinstance(error, ValueError) and str(error) else ""
                problems.append(f"{doc.name}={value!r} is not {doc.expected}{detail}")
        elif elsewhere and lowered in elsewhere:
            problems.append(f"{name!r} {elsewhere[lowered]}")
        elif lowered not in skipped and not lowered.startswith(tuple(ignored_prefixes)):
            names = {key: field.metadata["doc"].name for key, (_, field) in known.items()}
            near = difflib.get_close_matches(lowered, names, n=1)
            problems.append(f"unknown option {name!r}" + (f", did you mean {names[near[0]]!r}?" if near else ""))
    if problems:
        raise OptionError(
            "; ".join(problems),
            hint="correct the option" + ("s" if len(problems) > 1 else "") + "; `upstream options` lists all of them",
        )
    return [group(**values[group]) for group in groups]


def _fields(group: type) -> list[dataclasses.Field[Any]]:
    return [field for field in dataclasses.fields(group) if "doc" in field.metadata]


def non_empty(value: str) -> str:
    """Return a text; raise ValueError if it is blank."""
    if not value.strip():
        raise ValueError
    return value


def _at_least(number: int, minimum: int) -> int:
    if number < minimum:
        raise ValueError
    return number


def internal_option(
    given: Mapping[str, str], name: str, parse: Callable[[str], T], meaning: str
) -> tuple[T | None, dict[str, str]]:
    """Return an option that only this package sets, and the other options; raise OptionError if `parse` fails."""
    others = {each: value for each, value in given.items() if each.lower() != name.lower()}
    found = [value for each, value in given.items() if each not in others]
    try:
        return (parse(found[0]) if found else None), others
    except (ValueError, TypeError, KeyError):
        raise OptionError(
            f"{name}={found[0][:40]!r}", expected=f"nothing: it is how {meaning}", hint="leave this option out"
        ) from None


def whole_argument(name: str, value: Any) -> int | None:
    """Return a whole number of at least 1, given as a number or as text; None stays None."""
    if value is None:
        return None
    parser = positive_int()
    try:
        return int(parser.parse(str(value)))
    except ValueError:
        raise _refused(name, value, parser.expected) from None


def bytes_argument(name: str, value: Any) -> int | None:
    """Return the bytes of a size such as ``"512 MB"``, or of a number of at least 1; None stays None."""
    if value is None:
        return None
    try:
        found = -1 if isinstance(value, bool) else parse_bytes(str(value))
    except ValueError:
        found = -1
    if found < 1:
        raise OptionError(f"{name}={value!r}", expected="a size such as '512 MB'", hint=f"correct {name}")
    return found


def count_argument(name: str, value: Any, *, least: int = 1) -> int:
    """Return a whole number of at least `least`. Refuse text: a caller that computes a number needs no parser."""
    if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least:
        return int(value)
    raise OptionError(f"{name}={value!r}", expected=f"a whole number, at least {least}", hint=f"correct {name}")


def column_argument(name: str, value: Any) -> Any:
    """Return a Spark column, or its expression as text; None stays None."""
    from pyspark.sql import Column

    if isinstance(value, Column):
        return value
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _refused(name, value, "a column or an SQL expression")


def duration_argument(name: str, value: Any, *, such_as: str = "'10 minutes'") -> int:
    """Return the microseconds of a duration."""
    try:
        if isinstance(value, str):
            return parse_duration_us(value)
    except ValueError:
        pass
    raise OptionError(f"{name}={value!r}", expected=f"a duration such as {such_as}", hint=f"correct {name}")


def frame_argument(name: str, value: Any) -> Any:
    """Return a Spark DataFrame."""
    from pyspark.sql import DataFrame

    if isinstance(value, DataFrame):
        return value
    raise _refused(name, value, "a DataFrame of Spark's")


def text_argument(name: str, value: Any) -> str | None:
    """Return a non-empty text; None stays None."""
    if value is None or (isinstance(value, str) and value.strip()):
        return value
    raise _refused(name, value, "a text")


def path_argument(name: str, value: Any) -> str:
    """Return a path or an address as text."""
    try:
        found = os.fspath(value)
    except TypeError:
        found = None
    if isinstance(found, str) and found.strip():
        return found
    raise _refused(name, value, "a folder or an address")


def word_argument(name: str, value: Any, among: object) -> Any:
    """Return a word of the literal type `among`."""
    if value in get_args(among):
        return value
    raise OptionError(f"{name}={value!r}", expected="one of " + ", ".join(get_args(among)), hint=f"correct {name}")


def flag_argument(name: str, value: Any) -> bool:
    """Return a boolean; refuse other values, which might be meant as something else."""
    if isinstance(value, bool):
        return value
    raise OptionError(f"{name}={value!r}", expected="True or False", hint=f"correct {name}")


def names_argument(name: str, value: Any) -> str | Sequence[str] | None:
    """Return the name of a column, or several; None stays None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Sequence) and value and all(isinstance(each, str) and each for each in value):
        return value
    raise _refused(name, value, "the name of a column, or a list of several")


def _refused(name: str, value: Any, expected: str) -> OptionError:
    return OptionError(f"{name}={value!r} is not {expected}", expected=expected, hint=f"correct {name}")
