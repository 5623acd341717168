from decimal import ROUND_HALF_EVEN, Decimal, localcontext

import polars as pl
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from upstream.expressions import decimals as u

_NUMBERS = st.lists(
    st.none() | st.sampled_from([0, 1, -1, u.LIMIT - 1, 1 - u.LIMIT]) | st.integers(1 - u.LIMIT, u.LIMIT - 1)
)


def _run(expression: pl.Expr, numbers: list[int | None]) -> list[int | None]:
    frame = pl.DataFrame({"x": pl.Series(numbers, dtype=pl.Int128)})
    return frame.select(expression).to_series().to_list()


@given(numbers=_NUMBERS)
def test_there_and_back(numbers):
    dtype = pa.decimal128(38, 11)
    frame = pl.DataFrame({"x": pl.Series(numbers, dtype=pl.Int128)})
    there = frame.select(x=u.as_decimals(pl.col("x"), dtype))
    assert there.schema["x"] == pl.Decimal(38, 11)
    assert there.select(u.unscaled(pl.col("x"))).to_series().to_list() == numbers


@given(numbers=_NUMBERS)
@example(numbers=[10**34 + 5, 10**34 + 15, 10**35 + 50, 10**36 + 500, 10**37 + 5_000, 10**37 + 15_000, u.LIMIT - 5_000])
@example(numbers=[10**34 - 1, 10**34, 1 - 10**34, -(10**34) - 5, -(10**37) - 15_000, 10**37 + 5_001, 10**37 + 4_999])
def test_java_keeps_34_digits(numbers):
    with localcontext() as context:
        context.prec, context.rounding = 34, ROUND_HALF_EVEN
        expected = [None if each is None else int(+Decimal(each)) for each in numbers]
    assert _run(u.in_java_digits(pl.col("x"), 38), numbers) == expected


def test_too_many_digits_are_null_and_signs_change_where_asked():
    frame = pl.DataFrame({"x": pl.Series([99999, 100000, -99999, -100000], dtype=pl.Int128)})
    found = frame.select(u.as_decimals(pl.col("x"), pa.decimal128(5, 2))).to_series().to_list()
    assert found == [Decimal("999.99"), None, Decimal("-999.99"), None]
    assert _run(u.negative(pl.col("x"), pl.col("x") > 5), [5, 6, None]) == [5, -6, None]


@given(numbers=_NUMBERS, digits=st.integers(0, 40))
def test_scaled_is_exact_or_null(numbers, digits):
    most = (1 << 127) - 1
    exact = [None if each is None else each * 10**digits for each in numbers]
    expected = [None if each is None or abs(each) > most // 10**digits * 10**digits else each for each in exact]
    assert _run(u.scaled(pl.col("x"), digits), numbers) == expected


@given(numbers=_NUMBERS, digits=st.integers(0, 40))
@example(numbers=[5, -5, 4, 6, 15, -25, 0, None], digits=1)
@example(numbers=[u.LIMIT // 2, u.LIMIT // 2 - 1, -u.LIMIT // 2], digits=38)
def test_divided_rounds_half_away_from_zero(numbers, digits):
    def divided(number: int) -> int:
        size = (2 * abs(number) + 10**digits) // (2 * 10**digits)
        return size if number >= 0 else -size

    expected = [None if each is None else divided(each) for each in numbers]
    assert _run(u.divided_half_up(pl.col("x"), digits), numbers) == expected


def test_pythons_integers_take_the_rows_that_do_not_fit():
    asked: list[tuple[int, int]] = []

    def slow(left: int, right: int) -> int | None:
        asked.append((left, right))
        return None if right == 0 else left + right

    x = pl.col("x")
    found = _run(u.exact_decimals(x * u.int128(2), x < 10, slow, x, x - u.int128(20)), [1, 20, None, 30])
    assert found == [2, None, None, 40]
    assert asked == [(20, 0), (30, 10)]
