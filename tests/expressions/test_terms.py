import pytest
from kit.continuous import refused, relation
from kit.refusals import refusals
from sqlglot import exp

from upstream.language.dialect import ContinuousSql, parse


def written(node: exp.Expr) -> str:
    """Write an expression with all brackets."""
    if isinstance(node, exp.Paren):
        return written(node.this)
    if isinstance(node, exp.Binary) and not isinstance(node, exp.Dot):
        return f"({written(node.this)} {type(node).__name__} {written(node.expression)})"
    if isinstance(node, exp.Not | exp.Neg):
        return f"({type(node).__name__} {written(node.this)})"
    if isinstance(node, exp.Between):
        return f"({written(node.this)} Between {written(node.args['low'])} {written(node.args['high'])})"
    return node.sql(ContinuousSql)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("a + b * c", "(a Add (b Mul c))"),
        ("a - b - c", "((a Sub b) Sub c)"),
        ("a * b / c % d DIV e", "((((a Mul b) Div c) Mod d) IntDiv e)"),
        ("-a * b", "((Neg a) Mul b)"),
        ("- - a", "(Neg (Neg a))"),
        ("NOT a = b", "(Not (a EQ b))"),
        ("NOT a AND b OR c", "(((Not a) And b) Or c)"),
        ("a OR b AND c", "(a Or (b And c))"),
        ("a = b = c", "((a EQ b) EQ c)"),
        ("a = b IS NULL", "((a EQ b) Is NULL)"),
        ("a + 1 IS NOT NULL", "(Not ((a Add 1) Is NULL))"),
        ("a BETWEEN b + 1 AND c AND d", "((a Between (b Add 1) c) And d)"),
        ("a NOT BETWEEN 1 AND 2", "(Not (a Between 1 2))"),
        ("a | b ^ c & d", "(a BitwiseOr (b BitwiseXor (c BitwiseAnd d)))"),
        ("a & b << c + 1", "(a BitwiseAnd SHIFTLEFT(b, c + 1))"),
        ("a >> 1 >>> 2", "SHIFTRIGHTUNSIGNED(SHIFTRIGHT(a, 1), 2)"),
        ("a << b > c", "(SHIFTLEFT(a, b) GT c)"),
        ("a < b", "(a LT b)"),
        ("~a & b", "(~a BitwiseAnd b)"),
        ("a & b = c", "((a BitwiseAnd b) EQ c)"),
        ("a || b || c", "((a DPipe b) DPipe c)"),
        ("a NOT LIKE b || 'x'", "(Not (a Like (b DPipe 'x')))"),
        ("a LIKE b ESCAPE '!'", "((a Like b) Escape '!')"),
        ("a IS NOT DISTINCT FROM b", "(a NullSafeEQ b)"),
        ("a IS DISTINCT FROM b", "(Not (a NullSafeEQ b))"),
        ("a <=> b", "(a NullSafeEQ b)"),
        ("a == b", "(a EQ b)"),
        ("a != b", "(a NEQ b)"),
        ("(a OR b) AND c", "((a Or b) And c)"),
        ("a.b.c[1].d", "a.b.c[1].d"),
        ("x::bigint", "CAST(x AS BIGINT)"),
        ("CAST(x AS CHAR(2)) || y::varchar(9)", "(CAST(x AS STRING) DPipe CAST(y AS STRING))"),
        ("5L", "CAST(5 AS BIGINT)"),
        ("1.50BD", "CAST(1.50 AS DECIMAL(3, 2))"),
        ("DATE '2024-01-01'", "CAST('2024-01-01' AS DATE)"),
        ("'a' 'b'", "'ab'"),
        ('"a"', "'a'"),
        ("EXTRACT(HOUR FROM t)", "EXTRACT(HOUR FROM t)"),
        ("if(a, b, c)", "IF(a, b, c)"),
        ("left(a, 2)", "LEFT(a, 2)"),
        ("SUBSTRING(a FROM 2 FOR 3)", "SUBSTRING(a, 2, 3)"),
        ("timestampadd(month, 1, t)", "TIMESTAMPADD(MONTH, 1, t)"),
        ("datediff(week, a, b)", "DATEDIFF(WEEK, a, b)"),
        ("date_add(day, 3)", "DATE_ADD(day, 3)"),
        ("INTERVAL 10 MINUTES", "INTERVAL '10' MINUTE"),
        ("INTERVAL '10 minutes'", "INTERVAL '10' MINUTE"),
        ("INTERVAL '1 day -2 hours'", "INTERVAL '79200000000' MICROSECOND"),
        ("INTERVAL 1 WEEK '2' DAYS", "INTERVAL '9' DAY"),
        ("INTERVAL 1 YEAR 2 MONTHS", "INTERVAL '14' MONTH"),
        ("INTERVAL '-1 02:03:04.5' DAY TO SECOND", "INTERVAL '-93784500000' MICROSECOND"),
        ("INTERVAL '100:30' HOUR TO MINUTE", "INTERVAL '361800000000' MICROSECOND"),
        ("INTERVAL '1-2' YEAR TO MONTH", "INTERVAL '14' MONTH"),
        ("INTERVAL '-1.5' SECOND", "INTERVAL '-1.5' SECOND"),
        ("CASE a WHEN 1 THEN 'x' ELSE 'y' END", "CASE a WHEN 1 THEN 'x' ELSE 'y' END"),
        ("COUNT(DISTINCT a, b) FILTER (WHERE c)", "COUNT(DISTINCT a, b) FILTER(WHERE c)"),
    ],
)
def test_precedence_is_sparks(expression, expected):
    assert written(parse(f"SELECT {expression} FROM s").expressions[0]) == expected


test_what_is_no_expression_is_refused_at_its_place = refusals(
    ("px IS NULL = TRUE", "FROM", "="),
    ("px IN ()", "an expression", ")"),
    ("px NOT 3", "after NOT", "3"),
    ("px BETWEEN 1", "AND between", "FROM"),
    ("px RLIKE ANY ('a')", "RLIKE ANY", "ANY"),
    ("CASE END", "", "END"),
    ("CASE px END", "WHEN", "END"),
    ("CAST(px AS FLOT)", "double", "FLOT"),
    ("CAST(px AS VARCHAR)", "STRING has no length", ")"),
    ("CAST(px, INT)", "AS in CAST", ","),
    ("INTERVAL '1' DAY TO SECOND", "like '1 02:30:00.5'", ""),
    ("INTERVAL '1 24:00' DAY TO MINUTE", "not an interval DAY TO MINUTE", ""),
    ("INTERVAL '1' DAY TO MONTH", "DAY TO SECOND or YEAR TO MONTH", ""),
    ("INTERVAL 1 MONTH 2 DAYS", "either months or days", ""),
    ("INTERVAL '1 day 2'", "is not an interval", "'1 day 2'"),
    ("CAST('10:00' AS TIME)", "date_format", "TIME"),
    ("TIME '10:00'", "date_format", "TIME"),
    ("INTERVAL '1.5' DAY", "a whole number", ""),
    ("SUM(px) OVER w", "(", "w"),
    ("px[1", "]", "FROM"),
    ("px +", "an expression", "FROM"),
    ("px ! 3", "", ""),
    (":px", "", ""),
    ("?", "an expression", "?"),
    ("x -> x + 1", "", ""),
    of="SELECT {} FROM trade",
)


def test_units_are_words_and_literals_values():
    refused("SELECT TIMESTAMPADD('MONTH', 1, t) AS a FROM trade", "without quotes", at="'MONTH'")
    refused("SELECT DATEDIFF(FORTNIGHT, t, t) AS a FROM trade", "not a unit of DATEDIFF", "QUARTER", at="FORTNIGHT")
    plan = relation("SELECT -5, 'it''s', TRUE, NULL FROM trade [NOW]")
    assert [str(each.type) for each in plan.schema] == ["int32", "string", "bool", "null"]
