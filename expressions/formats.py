"""Times written and parsed as text in a letter format such as ``yyyy-MM-dd HH:mm:ss``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ..conf.errors import SchemaError
from .coercion import Rule, Signature, cast, implicit, misfit
from .columnar import Builder, Kernel, on_series
from .kinds import DATE, LONG, TEXT, TIMESTAMP
from .nodes import Call, Constant, Expression
from .notation import days_of_parts, formatted, whole_of_part, within_years

_WRITTEN = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "M": "%-m",
    "MMM": "%b",
    "MMMM": "%B",
    "dd": "%d",
    "d": "%-d",
    "HH": "%H",
    "H": "%-H",
    "hh": "%I",
    "h": "%-I",
    "mm": "%M",
    "m": "%-M",
    "ss": "%S",
    "s": "%-S",
    "a": "%p",
    "E": "%a",
    "EE": "%a",
    "EEE": "%a",
    "EEEE": "%A",
    "D": "%-j",
    "DDD": "%j",
}
_READ = {
    "yyyy": r"(?<year>[0-9]{4})",
    "MM": r"(?<month>[0-9]{2})",
    "dd": r"(?<day>[0-9]{2})",
    "HH": r"(?<hour>[0-9]{2})",
    "mm": r"(?<minute>[0-9]{2})",
    "ss": r"(?<second>[0-9]{2})",
}
_PARTS = ("year", "month", "day", "hour", "minute", "second", "part")
_MOST_DIGITS = 6
_WORD = re.compile(r"'([^']+)'|([A-Za-z])\2*|[-/:.,_ ]")
_BY_DEFAULT = Constant("yyyy-MM-dd HH:mm:ss", TEXT)


def _words(pattern: str, known: Mapping[str, str]) -> list[tuple[str, str]]:
    """Split a format into runs of one letter and literal text."""
    if "''" in pattern:
        raise SchemaError(f"the format {pattern!r} has a quote in it", expected="'quoted text' without quotes")
    parts: list[tuple[str, str]] = []
    at = 0
    while at < len(pattern):
        found = _WORD.match(pattern, at)
        word = found[0] if found else pattern[at:]
        letters = found is not None and found[2] is not None
        fraction = set(word) == {"S"} and len(word) <= _MOST_DIGITS
        if found is None or (letters and word not in known and not fraction):
            raise SchemaError(
                f"the format {pattern!r} has {word!r}",
                expected=", ".join(known) + ", S to SSSSSS, punctuation, and 'quoted text'",
            )
        parts.append((word, "") if letters else ("", found[1] or word))
        at = found.end()
    return parts


def _formatted_rule(function: str, arguments: Sequence[Expression]) -> Expression:
    return Signature(TEXT, (TIMESTAMP, TEXT), name="date_format")(function, arguments)


def _of_seconds(function: str, arguments: Sequence[Expression]) -> Expression:
    made = implicit(arguments[0], LONG) if 1 <= len(arguments) <= 2 else None
    if made is None:
        raise misfit(function, arguments, "from_unixtime(BIGINT[, STRING])")
    if len(arguments) == 1:
        return Call("from_unixtime", (made,), TEXT)
    return _formatted_rule("date_format", [Call("timestamp_seconds", (made,), TIMESTAMP), arguments[1]])


def parsed(function: str, arguments: Sequence[Expression], *, try_: bool) -> Expression:
    """Return text in a format as a TIMESTAMP. A time is cast to it."""
    value, pattern = arguments
    if value.type != TEXT:
        return cast(value, TIMESTAMP, try_=try_)
    made = implicit(pattern, TEXT)
    if made is None:
        raise misfit(function, arguments, "a value, and a format such as 'yyyy-MM-dd'")
    return Call("try_parse_time" if try_ else "parse_time", (value, made), TIMESTAMP)


def _seconds(function: str, arguments: Sequence[Expression]) -> Expression:
    """Return the seconds since 1970, rounded towards zero before 1970, unlike ``unix_seconds``."""
    if not 1 <= len(arguments) <= 2:
        raise misfit(function, arguments, "a TIMESTAMP or DATE, or text and its format")
    given = arguments if len(arguments) == 2 else [*arguments, _BY_DEFAULT]
    time = parsed(function, given, try_=False)
    micros = Signature(LONG, (TIMESTAMP,), name="unix_micros")(function, [time])
    return Call("div", (micros, Constant(1_000_000, LONG)), LONG)


FORMAT_RULES: Mapping[str, Rule] = {
    "date_format": _formatted_rule,
    "from_unixtime": _of_seconds,
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _seconds),
    **dict.fromkeys(("dayname", "monthname"), Signature(TEXT, (DATE,))),
}


def _date_format(build: Builder, time: pl.Expr, _: pl.Expr) -> pl.Expr:
    pattern = build.constant(1, "the format")
    if pattern is None:
        return build.nothing(pl.lit("")).cast(pl.String)
    made, pieces = "", list[pl.Expr]()
    for word, other in _words(pattern, _WRITTEN):
        if word.startswith("S"):
            pieces += [formatted(build, time, made), formatted(build, time, "%6f").str.slice(0, len(word))]
            made = ""
        else:
            made += _WRITTEN[word] if word else other.replace("%", "%%")
    return pl.concat_str(*pieces, formatted(build, time, made)) if pieces else formatted(build, time, made)


def _name(pattern: str) -> Kernel:
    return lambda build, date: formatted(build, date.cast(pl.Datetime("us")), pattern)


def _parse(build: Builder, text: pl.Expr, _: pl.Expr) -> pl.Expr:
    pattern = build.constant(1, "the format")
    if pattern is None:
        return build.nothing(pl.lit(0)).cast(pl.Datetime("us", build.type.tz))
    words = _words(pattern, _READ)
    letters = [word[0] for word, _ in words if word]
    if len(set(letters)) < len(letters):
        raise SchemaError(f"the format {pattern!r} has a part twice", expected="each part once")
    expression = "".join(_reading(word, other) for word, other in words)
    expression = rf"^{expression}\z"

    def run(series: pl.Series) -> pl.Series:
        parts = series.str.extract_groups(expression).struct.unnest() if letters else pl.DataFrame()
        matches = series.str.contains(expression).fill_null(value=False)
        missing = [pl.lit(None, dtype=pl.String).alias(name) for name in (*_PARTS, "sign") if name not in parts.columns]
        parts = pl.DataFrame({"__text": series}).hstack(parts).with_columns(missing)
        days, valid = days_of_parts(parts, year="1970")
        hour, minute, second = (whole_of_part(parts, name, 0) for name in ("hour", "minute", "second"))
        part = parts["part"].fill_null("").str.pad_end(6, "0").cast(pl.Int64).to_numpy()
        valid &= pl.Series((hour < 24) & (minute < 60) & (second < 60)) & matches
        micros = days * 86_400_000_000 + ((hour * 60 + minute) * 60 + second) * 1_000_000 + part
        return pl.Series(np.asarray(micros), dtype=pl.Int64).set(~valid, None)

    text = build.share(text)
    build.fail(
        ~text.str.contains(expression) & text.str.contains(r"[+-][0-9]{4}"),
        "the text may be a year outside of 1 to 9999",
        "leave such rows out",
        lasting=True,
    )
    micros = build.share(on_series(run, text, dtype=pl.Int64))
    hint = "use try_to_date or try_to_timestamp, which give null"
    build.fail(micros.is_null() & text.is_not_null(), f"the text is not a time in the format {pattern!r}", hint)
    return within_years(build, micros).cast(pl.Datetime("us", build.type.tz))


def _reading(word: str, other: str) -> str:
    """Return the regular expression of one part. A fraction may have fewer digits than its letters."""
    if word.startswith("S"):
        return rf"(?<part>[0-9]{{1,{len(word)}}})"
    return _READ[word] if word else re.escape(other)


FORMATS: Mapping[str, Kernel] = {
    "date_format": _date_format,
    "dayname": _name("%a"),
    "monthname": _name("%b"),
    "parse_time": _parse,
}
