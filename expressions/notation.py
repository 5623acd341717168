"""Numbers, dates and timestamps from text and as text, in the form of Spark's casts."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal, localcontext

import numpy as np
import polars as pl
import pyarrow as pa

from ..core.rows.event_times import instants_of
from ..core.rows.exact_integers import Int64s
from .calendar import FIRST_DAY, LAST_DAY, days_in_month, days_of_civil
from .columnar import Builder, on_series, polars_type
from .decimals import as_decimals, negative
from .kinds import MAX_PRECISION, TIMESTAMP

_BLANK = "".join(map(chr, range(33)))
_DOUBLE = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[dDfF]?$"
_WORDS = {
    **dict.fromkeys(("inf", "+inf", "infinity", "+infinity"), float("inf")),
    **dict.fromkeys(("-inf", "-infinity"), float("-inf")),
    "nan": float("nan"),
}
_DECIMAL = r"^(?<sign>[+-]?)(?<whole>[0-9]*)(?:\.(?<part>[0-9]*))?(?<exponent>[eE][+-]?[0-9]+)?$"
_DATE = r"(?s)^(?<sign>[+-]?)(?<year>[0-9]{4,7})(?:-(?<month>[0-9]{1,2})(?:-(?<day>[0-9]{1,2})(?:[ T].*)?)?)?$"
_TIME = (
    r"(?s)^(?<sign>[+-]?)(?<year>[0-9]{4,6})(?:-(?<month>[0-9]{1,2})(?:-(?<day>[0-9]{1,2})"
    r"(?:[ T](?<hour>[0-9]{1,2})(?::(?<minute>[0-9]{1,2})(?::(?<second>[0-9]{1,2})(?:\.(?<part>[0-9]*))?"
    r"(?<zone>[^0-9.].*)?)?)?)?)?)?$"
)
_TIME_ALONE = r"^T?[0-9]{1,2}:[0-9]{1,2}"
_YEARS = "the text is a time outside the years 1 to 9999"
_DAY_US = 86_400_000_000


def trimmed(text: pl.Expr) -> pl.Expr:
    """Strip blanks and control characters from both ends."""
    return text.str.strip_chars(_BLANK + "\x7f")


def double_of_text(text: pl.Expr, dtype: pl.DataType) -> pl.Expr:
    """Parse floating-point numbers."""
    return on_series(lambda series: _doubles(series, dtype), text, dtype=dtype)


def _doubles(text: pl.Series, dtype: pl.DataType) -> pl.Series:
    text = text.str.strip_chars(_BLANK)
    made = text.cast(dtype, strict=False)  # if it is finite, it is Java's number too
    others = (~made.is_finite()).fill_null(value=True) & text.is_not_null()
    if not others.any():
        return made
    other = pl.col("text")
    number = pl.when(other.str.contains(_DOUBLE)).then(other.str.strip_chars_end("dDfF").str.strip_prefix("+"))
    words = other.str.to_lowercase().replace_strict(_WORDS, default=None, return_dtype=dtype)
    found = text.filter(others).to_frame("text").select(pl.coalesce(number.cast(dtype, strict=False), words))
    return made.scatter(others.arg_true(), found.to_series())


def decimal_of_text(build: Builder, text: pl.Expr, dtype: pa.Decimal128Type) -> pl.Expr:
    """Parse decimals, rounded half away from zero; null if there are too many digits."""
    numbers = on_series(lambda series: _last_digits(series, dtype.scale), text, dtype=pl.Int128)
    return as_decimals(build.share(numbers), dtype)


def _last_digits(text: pl.Series, scale: int) -> pl.Series:
    """Parse decimals as unscaled Int128 numbers; null if the text is not a number or has too many digits."""
    text = text.str.strip_chars(_BLANK)
    whole, part = pl.col("whole").str.strip_chars_start("0"), pl.col("part").fill_null("")
    digits = pl.concat_str(pl.lit("0"), whole, part.str.pad_end(scale, "0").str.slice(0, scale))
    numbers = digits.cast(pl.Int128, strict=False) + (part.str.slice(scale, 1) >= "5").cast(pl.Int128)
    few = whole.str.len_chars() <= MAX_PRECISION - scale
    powers = pl.col("exponent").is_not_null()
    named = pl.col("text").str.contains(r"^[^eE]*[0-9]") & pl.col("whole").is_not_null()
    parts = text.str.extract_groups(_DECIMAL).struct.unnest().with_columns(text.alias("text"))
    found = parts.select(
        numbers=pl.when(named & few & ~powers).then(negative(numbers, pl.col("sign") == "-")),
        powers=(named & powers).fill_null(value=False),
    )
    numbers_found, by_power = found["numbers"], found["powers"]
    if not by_power.any():
        return numbers_found
    places = by_power.arg_true()
    return numbers_found.scatter(places, pl.Series([_power(e, scale) for e in text.gather(places)], dtype=pl.Int128))


def _power(text: str, scale: int) -> int | None:
    """Return the unscaled number of a decimal with an exponent; None if it has too many digits."""
    exact = Decimal(text)
    if not exact or exact.adjusted() < -MAX_PRECISION - 2:
        return 0
    if exact.adjusted() > MAX_PRECISION:
        return None
    with localcontext() as context:
        context.prec = 2 * len(text) + 100
        made = int(exact.scaleb(scale).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    return made if abs(made) < 10**MAX_PRECISION else None


def whole_of_part(parts: pl.DataFrame, name: str, default: int) -> Int64s:
    """Return a column of text as whole numbers, with a default for null."""
    return parts[name].cast(pl.Int64).fill_null(default).to_numpy()


def days_of_parts(parts: pl.DataFrame, year: str | None = None) -> tuple[Int64s, pl.Series]:
    """Return days since 1970, and a mask of the parts that form a real date; `year` replaces a missing year."""
    if year is not None:
        parts = parts.with_columns(pl.col("year").fill_null(year))
    years = whole_of_part(parts, "year", 1970)
    month, day = whole_of_part(parts, "month", 1), whole_of_part(parts, "day", 1)
    years = np.where((parts["sign"] == "-").fill_null(value=False).to_numpy(), -years, years)
    valid = (month >= 1) & (month <= 12) & (day >= 1)
    month = np.where(valid, month, 1)
    valid &= day <= days_in_month(years, month)
    return days_of_civil(years, month, np.where(valid, day, 1)), parts["year"].is_not_null() & pl.Series(valid)


def date_of_text(build: Builder, text: pl.Expr) -> pl.Expr:
    """Parse dates."""

    def run(series: pl.Series) -> pl.Series:
        days, valid = days_of_parts(series.str.extract_groups(_DATE).struct.unnest())
        return pl.Series(days, dtype=pl.Int64).set(~valid, None)

    days = build.share(on_series(run, trimmed(text), dtype=pl.Int64))
    inside = days.is_between(FIRST_DAY, LAST_DAY)
    build.fail(~inside, _YEARS, "leave such rows out", lasting=True)
    return pl.when(inside).then(days).cast(pl.Int32).cast(pl.Date)


def timestamp_of_text(build: Builder, text: pl.Expr, zone: str = "UTC") -> pl.Expr:
    """Parse timestamps; `zone` applies to text without a zone."""
    zoned = build.type == TIMESTAMP

    def run(series: pl.Series) -> pl.Series:
        parts = series.str.extract_groups(_TIME).struct.unnest()
        days, valid = days_of_parts(parts)
        hour, minute, second = (whole_of_part(parts, name, 0) for name in ("hour", "minute", "second"))
        part = parts["part"].fill_null("").str.pad_end(6, "0").str.slice(0, 6).cast(pl.Int64).to_numpy()
        valid &= pl.Series((hour < 24) & (minute < 60) & (second < 60))
        offset = _offsets(parts["zone"])
        valid &= offset.is_not_null()
        shift = offset.fill_null(0).to_numpy() if zoned else 0
        micros = ((hour * 60 + minute) * 60 + second - shift) * 1_000_000 + part
        far = np.abs(days) > 10_000_000  # their microseconds would overflow; they fail below
        made = np.where(far, np.sign(days) * 10_000_000, days) * _DAY_US + micros
        if zoned and zone != "UTC":
            made = np.where(parts["zone"].is_null().to_numpy(), instants_of(made, zone, shifted=True), made)
        return pl.Series(made, dtype=pl.Int64).set(~valid, None)

    text = build.share(trimmed(text))
    build.fail(
        text.str.contains(_TIME_ALONE),
        "the text is a time of day without a date, which Spark completes with the date of today",
        "write the date",
        lasting=True,
    )
    build.fail(
        text.str.contains(r"(?s)^[+-]?[0-9]{4,6}-.*:[0-9.]+ ?[A-Za-z]+/"),
        "the text names a region as its time zone",
        "write the offset, such as +01:00",
        lasting=True,
    )
    micros = build.share(on_series(run, text, dtype=pl.Int64))
    return within_years(build, micros).cast(polars_type(build.type))


def within_years(build: Builder, micros: pl.Expr) -> pl.Expr:
    """Return microseconds; fail outside the years 1 to 9999."""
    inside = micros.is_between(FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1)
    build.fail(~inside, _YEARS, "leave such rows out", lasting=True)
    return pl.when(inside).then(micros)


def _offsets(zones: pl.Series) -> pl.Series:
    """Return the zones' seconds ahead of UTC; null if the text is not a zone."""
    named = zones.drop_nulls().unique().to_list()
    if not named:
        return pl.Series(np.zeros(len(zones), dtype=np.int64))
    known = pl.Series([offset_of_zone(each.strip(_BLANK)) for each in named], dtype=pl.Int64)
    found = zones.replace_strict(pl.Series(named), known, default=None, return_dtype=pl.Int64)
    return found.set(zones.is_null(), 0)


_OFFSET = re.compile(r"([+-])(\d{1,2})(?::?(\d{2})(?::?(\d{2}))?)?")


def offset_of_zone(zone: str) -> int | None:
    """Return the seconds ahead of UTC for a zone written as an offset; None for any other text."""
    name = re.sub(r"^([+-])(\d):", r"\g<1>0\2:", zone)
    name = re.sub(r"([+-])(\d\d):(\d)$", r"\1\2:0\3", name)
    for prefix in ("UTC", "GMT", "UT", "Z"):
        if name == prefix:
            return 0
        if name.startswith(prefix) and prefix != "Z":
            name = name.removeprefix(prefix)
            break
    found = _OFFSET.fullmatch(name)
    if found is None or (len(found[2]) == 1 and found[3]):
        return None
    hours, minutes, seconds = (int(each or 0) for each in found.groups()[1:])
    ahead = hours * 3600 + minutes * 60 + seconds
    if minutes > 59 or seconds > 59 or ahead > 18 * 3600:
        return None
    return ahead if found[1] == "+" else -ahead


_YEARS_OF_TIME = "the time is outside the years 1 to 9999"


def text_of_date(build: Builder, dates: pl.Expr) -> pl.Expr:
    """Return dates as ``yyyy-MM-dd``."""
    inside = dates.to_physical().is_between(FIRST_DAY, LAST_DAY)
    build.fail(~inside, _YEARS_OF_TIME, "leave such rows out", lasting=True)
    return _written(dates, inside, "%Y-%m-%d")


def text_of_timestamp(build: Builder, times: pl.Expr) -> pl.Expr:
    """Return timestamps as ``yyyy-MM-dd HH:mm:ss``, with the second's fraction without trailing zeros."""
    text = formatted(build, times, "%Y-%m-%d %H:%M:%S%.6f")
    return text.str.strip_chars_end("0").str.strip_suffix(".")


def formatted(build: Builder, times: pl.Expr, pattern: str) -> pl.Expr:
    """Return timestamps in a format of ``strftime``."""
    times = build.share(times)
    inside = times.to_physical().is_between(FIRST_DAY * _DAY_US, (LAST_DAY + 1) * _DAY_US - 1)
    build.fail(~inside, _YEARS_OF_TIME, "leave such rows out", lasting=True)
    return _written(times, inside, pattern)


def _written(times: pl.Expr, inside: pl.Expr, pattern: str) -> pl.Expr:
    """Return times as text, null outside the years: Polars panics there, even below a null."""
    epoch = pl.lit(0, dtype=pl.Int32).cast(pl.Date)
    return pl.when(inside).then(pl.when(inside).then(times).otherwise(epoch).dt.to_string(pattern))


def text_of_double(numbers: pl.Series) -> pl.Series:
    """Write floats like Java, with the fewest digits that identify them: ``0.001``, ``1.0E7``, ``1.0E-4``, ``NaN``."""
    text = numbers.cast(pl.String)
    size = numbers.abs()
    plain = ((size >= 1e-3) & (size < 1e7)) | (size == 0)
    frame = pl.DataFrame({"text": text, "size": size.cast(pl.Float64), "plain": plain})
    digits, power = _digits(), _power_of_ten()
    mantissa = pl.concat_str(
        digits.str.slice(0, 1),
        pl.lit("."),
        pl.when(digits.str.len_chars() > 1).then(digits.str.slice(1)).otherwise(pl.lit("0")),
    )
    sign = pl.when(pl.col("text").str.starts_with("-")).then(pl.lit("-")).otherwise(pl.lit(""))
    large = pl.when(pl.col("size").is_nan()).then(pl.lit("NaN"))
    large = large.when(pl.col("size").is_infinite()).then(sign + pl.lit("Infinity"))
    large = large.otherwise(pl.concat_str(sign, mantissa, pl.lit("E"), power.cast(pl.String)))
    made = frame.select(pl.when(pl.col("plain")).then(pl.col("text")).otherwise(large)).to_series()
    coarse = ((size > 0) & (size < (1e-43 if numbers.dtype == pl.Float32 else 1e-322))).fill_null(value=False)
    if not coarse.any():
        return made
    # Java writes two digits at least, and of those the nearest: 4.9E-324.
    places = coarse.arg_true()
    return made.scatter(places, [f"{Decimal(each):.1E}" for each in numbers.gather(places)])


def _parts() -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return the digits before and after the point, and the exponent, of Polars' text."""
    text = pl.col("text")
    whole = text.str.extract(r"^-?([0-9]+)", 1)
    part = text.str.extract(r"\.([0-9]+)", 1).fill_null("")
    exponent = text.str.extract(r"e([+-]?[0-9]+)$", 1).str.strip_prefix("+").cast(pl.Int64).fill_null(0)
    return whole, part, exponent


def _digits() -> pl.Expr:
    whole, part, _ = _parts()
    return pl.concat_str(whole, part).str.strip_chars_start("0").str.strip_chars_end("0")


def _power_of_ten() -> pl.Expr:
    """Return the exponent of the first nonzero digit."""
    whole, part, exponent = _parts()
    before = whole.str.strip_chars_start("0").str.len_chars().cast(pl.Int64)
    zeros = part.str.len_chars().cast(pl.Int64) - part.str.strip_chars_start("0").str.len_chars().cast(pl.Int64)
    return exponent + pl.when(before > 0).then(before - 1).otherwise(-zeros - 1)
