"""Texts as times by the patterns of Python's strptime."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

from ...conf.errors import OptionError

if TYPE_CHECKING:
    import polars as pl

_MONTHS = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip
_DAYS = "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"
# As in Python's `_strptime`, in its order of alternatives.
_DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "1[0-2]|0[1-9]|[1-9]",
    "B": "|".join(sorted(_MONTHS, key=len, reverse=True)),
    "b": "|".join(month[:3] for month in _MONTHS),
    "d": "3[01]|[12][0-9]|0[1-9]|[1-9]| [1-9]",
    "j": "36[0-6]|3[0-5][0-9]|[12][0-9][0-9]|0[1-9][0-9]|00[1-9]|[1-9][0-9]|0[1-9]|[1-9]",
    "H": "2[0-3]|[01][0-9]|[0-9]",
    "I": "1[0-2]|0[1-9]|[1-9]",
    "p": "AM|PM",
    "M": "[0-5][0-9]|[0-9]",
    "S": "6[01]|[0-5][0-9]|[0-9]",
    "f": "[0-9]{1,6}",
    "z": "[+-][0-9]{2}:?[0-5][0-9]|(?-i:Z)",
    "A": "|".join(sorted(_DAYS, key=len, reverse=True)),
    "a": "|".join(day[:3] for day in _DAYS),
}
# What Polars reads as Python does, and several times as fast, if it has its full width.
_FULL = {
    "Y": "[0-9]{4}",
    "m": "(?:0[1-9]|1[0-2])",
    "d": "(?:0[1-9]|[12][0-9]|3[01])",
    "H": "(?:[01][0-9]|2[0-3])",
    "M": "[0-5][0-9]",
    "S": "[0-5][0-9]",
    "f": "[0-9]{1,6}",
}
_ONE_OF = (("Y", "y"), ("m", "b", "B", "j"), ("d", "j"), ("H", "I"))


class TimePattern(NamedTuple):
    """A pattern as regular expressions of Rust: of all its texts, and of those that Polars reads."""

    matches: str
    quick: str | None
    polars: str
    directives: tuple[str, ...]

    def parse(self, texts: pl.Series) -> pl.Series:
        """Return the times of texts, in UTC if they have a zone; null for a text that Python's strptime refuses."""
        import polars as pl

        if self.quick is None:
            return self._parse_groups(texts)
        full = texts.str.contains(self.quick).fill_null(False)
        times = texts.set(~full, None).str.to_datetime(self.polars, time_unit="us", strict=False)
        if (~full & texts.is_not_null()).any():
            times = pl.select(pl.coalesce(times, self._parse_groups(texts.set(full, None)))).to_series()
        return times

    def _parse_groups(self, texts: pl.Series) -> pl.Series:
        import polars as pl

        groups = texts.str.extract_groups(self.matches).struct.unnest()
        part = {name: groups.get_column(name).set(groups.get_column("rest") != "", None) for name in self.directives}

        def number(name: str, otherwise: int = 0) -> pl.Expr:
            return pl.lit(part[name].str.strip_chars().cast(pl.Int64)) if name in part else pl.lit(otherwise)

        year = number("Y")
        if "y" in part:
            year = number("y") + pl.when(number("y") <= 68).then(2000).otherwise(1900)
        month = number("m", 1)
        for name, size in (("b", 3), ("B", None)):
            if name in part:
                numbers = {each[:size].lower(): place for place, each in enumerate(_MONTHS, 1)}
                month = pl.lit(part[name].str.to_lowercase()).replace_strict(numbers, default=None)
        hour = number("H")
        if "I" in part:
            afternoon = pl.lit(part["p"].str.to_lowercase() == "pm") if "p" in part else pl.lit(value=False)
            hour = number("I") % 12 + pl.when(afternoon).then(12).otherwise(0)
        second = number("S")
        micros = pl.lit(part["f"].str.pad_end(6, "0").cast(pl.Int64)) if "f" in part else pl.lit(0)
        digits = [year.cast(pl.String).str.zfill(4), month.cast(pl.String).str.zfill(2)]
        day = pl.concat_str([*digits, number("d", 1).cast(pl.String).str.zfill(2)], separator="-")
        date = day.str.to_date("%Y-%m-%d", strict=False) + pl.duration(days=number("j", 1) - 1)
        time = hour * 3_600_000_000 + number("M") * 60_000_000 + pl.when(second < 60).then(second) * 1_000_000 + micros
        if "z" in part:
            zone = part["z"].str.to_uppercase().replace("Z", "+0000").str.replace(":", "", literal=True)
            hours, minutes = (zone.str.slice(at, 2).cast(pl.Int64) for at in (1, 3))
            sign = pl.when(pl.lit(zone.str.starts_with("-"))).then(-1).otherwise(1)
            time -= sign * pl.when(pl.lit(hours < 24)).then(pl.lit(hours * 60 + minutes)) * 60_000_000
        return groups.select((date.cast(pl.Datetime("us")) + pl.duration(microseconds=time)).alias("time")).to_series()


@functools.lru_cache(maxsize=64)
def time_pattern(text: str) -> TimePattern:
    """Return a pattern; raise OptionError for one that Python refuses, or whose times depend on a locale."""
    matches, quick = "", ""
    directives: list[str] = []
    for directive, space, literal in re.findall(r"%(.?)|(\s+)|([^%\s]+)", text, re.DOTALL):
        if space:
            matches, quick = matches + r"\s+", quick + space
        elif literal or directive == "%":
            matches, quick = matches + re.escape(literal or "%"), quick + re.escape(literal or "%")
        elif directive not in _DIRECTIVES:
            raise _refused(text, f"%{directive} is not supported")
        else:
            matches, quick = f"{matches}(?P<{directive}>{_DIRECTIVES[directive]})", quick + _FULL.get(directive, "")
            directives.append(directive)
    for directive in directives:
        if directives.count(directive) > 1:
            raise _refused(text, f"it has %{directive} twice")
    for group in _ONE_OF:
        if len(several := [f"%{each}" for each in group if each in directives]) > 1:
            raise _refused(text, f"it has both {several[0]} and {several[1]}")
    if "Y" not in directives and "y" not in directives:
        raise _refused(text, "it has no year")
    # To Polars, %f are nanoseconds, and %.f is a point and a fraction.
    polars = text.replace("%S.%f", "%S%.f") if "%%" not in text else text
    plain = {"Y", "m", "d"} <= set(directives) <= set(_FULL) and "%f" not in polars
    return TimePattern(
        rf"(?is)\A{matches}(?P<rest>.*)\z", rf"\A{quick}\z" if plain else None, polars, tuple(directives)
    )


def _refused(text: str, why: str) -> OptionError:
    return OptionError(
        f"the time pattern {text!r} is refused: {why}",
        expected=f"a strptime pattern with a year, of {' '.join(f'%{each}' for each in _DIRECTIVES)}",
        hint="for other texts, compute the time with the option `select`",
    )
