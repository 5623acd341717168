"""What each aggregate is, in plain Python, for the rows of one group; and ways to compute it in pieces."""

import datetime
import decimal
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

DECIMALS = decimal.Context(prec=120)

SCHEMA = pa.schema(
    {
        "i": pa.int64(),
        "small": pa.int32(),
        "d": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 6),
        "f": pa.float64(),
        "s": pa.string(),
        "x": pa.binary(),
        "b": pa.bool_(),
        "day": pa.date32(),
        "at": pa.timestamp("us", tz="UTC"),
        "clock": pa.time64("ns"),
        "span": pa.duration("us"),
        "time": pa.int64(),
        "seq": pa.int64(),
    }
)

UTC = datetime.timezone.utc


def _maybe(strategy):
    return st.one_of(st.none(), strategy)


_INTEGERS = st.one_of(st.integers(-5, 5), st.integers(-(2**59), 2**59))
_FLOATS = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e16, -1e16, 0.1]),
    st.floats(-1e6, 1e6),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300),
)
_ROW = st.fixed_dictionaries(
    {
        "i": _maybe(_INTEGERS),
        "small": _maybe(st.integers(-(2**31), 2**31 - 1)),
        "d": _maybe(st.decimals(-99999999, 99999999, places=2)),
        "wide": _maybe(st.decimals("-1e26", "1e26", places=6, allow_nan=False)),
        "f": _maybe(_FLOATS),
        "s": _maybe(st.text(max_size=3)),
        "x": _maybe(st.binary(max_size=3)),
        "b": _maybe(st.booleans()),
        "day": _maybe(st.dates()),
        "at": _maybe(
            st.datetimes(datetime.datetime(1800, 1, 1), datetime.datetime(2200, 1, 1), timezones=st.just(UTC))
        ),
        "clock": _maybe(st.times()),
        "span": _maybe(st.timedeltas(datetime.timedelta(-9), datetime.timedelta(9))),
        "time": st.integers(0, 4),
    }
)


@st.composite
def grouped_rows(draw, max_size=30):
    """Rows in some order, each with its group; (time, seq) is unique."""
    rows = draw(st.lists(_ROW, max_size=max_size))
    rows = [row | {"seq": number} for number, row in enumerate(rows)]
    return [(draw(st.integers(0, 3)), row) for row in draw(st.permutations(rows))]


def table(rows):
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def in_one_pass(aggregates, grouped, groups):
    codes = np.array([code for code, _ in grouped], dtype=np.int64)
    return aggregates.lift(table([row for _, row in grouped]), codes, groups)


def in_pieces(aggregates, grouped, groups, pieces, shuffle):
    """Deal the rows out to pieces, lift each, combine the states in another order."""
    states, codes = [], []
    for piece in range(max(pieces, default=0) + 1):
        mine = [row for row, to in zip(grouped, pieces, strict=True) if to == piece]
        states.append(in_one_pass(aggregates, mine, groups))
        codes.append(np.arange(groups))
    together, codes = pa.concat_tables(states), np.concatenate(codes)
    order = np.array(sorted(range(len(codes)), key=lambda place: (shuffle.random(), place)), dtype=np.int64)
    return aggregates.combine(together.take(pa.array(order)), codes[order], groups)


def values(grouped, group, column):
    return [row[column] for code, row in grouped if code == group and row[column] is not None]


def total(found):
    if not found:
        return None
    if not isinstance(found[0], float):
        return sum(found[1:], found[0]) if isinstance(found[0], int) else _decimal_sum(found)
    if not all(map(math.isfinite, found)):
        return sum(found)  # infinite or NaN in any order
    return _double(sum(map(Fraction, found)))


def mean(found):
    if not found:
        return None
    if isinstance(found[0], decimal.Decimal):
        places = -found[0].as_tuple().exponent + 4
        quotient = DECIMALS.divide(_decimal_sum(found), decimal.Decimal(len(found)))
        return quotient.quantize(decimal.Decimal(1).scaleb(-places), decimal.ROUND_HALF_UP, context=DECIMALS)
    if not all(map(math.isfinite, found)):
        return sum(found) / len(found)
    return _double(sum(map(Fraction, found)) / len(found))


def variance(found, sample):
    if len(found) <= sample:
        return None
    found = [float(value) for value in found]
    if not all(map(math.isfinite, found)):
        return math.nan
    exact = [Fraction(value) for value in found]
    middle = sum(exact) / len(exact)
    return _double(sum((value - middle) ** 2 for value in exact) / (len(exact) - sample))


def spark_order(value):
    """NaN above all numbers."""
    return (math.isnan(value), 0 if math.isnan(value) else value) if isinstance(value, float) else value


def least(found):
    return min(found, key=spark_order, default=None)


def greatest(found):
    return max(found, key=spark_order, default=None)


def by_time(grouped, group):
    return sorted((row for code, row in grouped if code == group), key=lambda row: (row["time"], row["seq"]))


def same(found, expected, within=0.0):
    """Equal as Spark has it: NaN equals NaN, and doubles may be off by an ulp, or by what was cancelled."""
    if isinstance(found, float) and isinstance(expected, float):
        if math.isnan(expected) or math.isinf(expected):
            return found == expected or (math.isnan(found) and math.isnan(expected))
        return math.isclose(found, expected, rel_tol=1e-15, abs_tol=max(within, 1e-290))
    return found == expected and type(found) is type(expected)


def _decimal_sum(found):
    result = found[0]
    for value in found[1:]:
        result = DECIMALS.add(result, value)
    return result


def _double(fraction):
    try:
        return float(fraction)
    except OverflowError:
        return math.copysign(math.inf, fraction)
