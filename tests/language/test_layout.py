"""Files of statements in their one layout: it means the same, has all comments, and is stable."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import modules
from kit.continuous import CATALOG
from kit.places import ROOT

from upstream.conf.errors import OptionError, QueryRefusedError
from upstream.language import bind
from upstream.language.layout import layout
from upstream.language.statements import Alter, Create, CreateFunction, Explain, Select, Statement, script

FILE = r"""
-- The fleet.

-- Its positions:
create source buses from 'feed/*.csv'   -- one file a day
  with (key = 'vehicle_id', event_time = 'timestamp', watermark_delay = '5 minutes', max_files_per_trigger = 1);
create source s from 'x' with (key='k', n = -1, kafka.sasl.password = env('P')); -- trailing; comment
;

CREATE MATERIALIZED VIEW fleet WITH (weight = 2) AS -- why
  select route_id, count(*) as n /* that move */  -- first
     , avg(speed) as `an avg`, -x, - -1 as y, 5L as five, 'a''b' as z,
     case when speed > 10 then 'fast' when speed is distinct from 5 then 'five' else left(kind, 2) end as kind
  from moving m left join (select a,b from trade [range 10 minutes slide 1 minute]
   where a in (select b from quote [now])) q on q.a = m.route_id and q.b between 3 and 4
  -- the moving ones
  where speed > 10 and (route_id = 'a' or route_id = 'b' and not exists (select 1 from t [now])) and m.`long name` = 1
  group by route_id having count(*)>3 emit periodic interval '5' seconds
  -- last
  ;
alter materialized view q set (weight = 3);
create function score(x double,s struct<a:int, c array < int >>) returns struct<z: bigint> as 'j:s';
explain select 1 /* ; */;
drop materialized view q purge -- end
"""
LAID = r"""-- The fleet.

-- Its positions:
CREATE SOURCE buses
  FROM 'feed/*.csv' -- one file a day
  WITH (
    key = 'vehicle_id',
    event_time = 'timestamp',
    watermark_delay = '5 minutes',
    max_files_per_trigger = 1
  );
CREATE SOURCE s FROM 'x' WITH (key = 'k', n = -1, kafka.sasl.password = env('P')); -- trailing; comment

CREATE MATERIALIZED VIEW fleet WITH (weight = 2) AS -- why
  SELECT
    route_id,
    COUNT(*) AS n, /* that move */ -- first
    AVG(speed) AS `an avg`,
    -x,
    - -1 AS y,
    5L AS five,
    'a''b' AS z,
    CASE
      WHEN speed > 10 THEN 'fast'
      WHEN speed IS DISTINCT FROM 5 THEN 'five'
      ELSE LEFT(kind, 2)
    END AS kind
  FROM moving m
  LEFT JOIN (
    SELECT a, b
    FROM trade [RANGE 10 MINUTES SLIDE 1 MINUTE]
    WHERE a IN (SELECT b FROM quote [NOW])
  ) q
    ON q.a = m.route_id AND q.b BETWEEN 3 AND 4
  -- the moving ones
  WHERE
    speed > 10
    AND (route_id = 'a' OR route_id = 'b' AND NOT EXISTS (SELECT 1 FROM t [NOW]))
    AND m.`long name` = 1
  GROUP BY route_id
  HAVING COUNT(*) > 3
  EMIT PERIODIC INTERVAL '5' SECONDS
  -- last
;
ALTER MATERIALIZED VIEW q SET (weight = 3);
CREATE FUNCTION score(x DOUBLE, s STRUCT<a: INT, c ARRAY<INT>>) RETURNS STRUCT<z: BIGINT> AS 'j:s';
EXPLAIN select 1 /* ; */;
DROP MATERIALIZED VIEW q PURGE; -- end
"""


def test_a_file_gets_its_layout():
    assert layout(FILE) == LAID
    assert layout(LAID) == LAID


@pytest.mark.parametrize("text", ["", "-- alone;\n", "/* a */\n\n-- b\n"])
def test_comments_alone_stay(text):
    assert layout(text) == text
    assert layout(";;" + text) == text


GRAMMAR = modules.tool("query_grammar")
TEXTS = sorted({*GRAMMAR.every(GRAMMAR.GRAMMAR["statement"]), *GRAMMAR.every(GRAMMAR.GRAMMAR["query"])}, key=" ".join)
EXAMPLES = re.findall(r"```sql\n(.*?)```", (ROOT / "docs" / "query-language.md").read_text("utf-8"), re.DOTALL)
WHOLE = re.compile(r"'[^']*'")
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)


def meaning(statement: Statement) -> object:
    text = statement.text if isinstance(statement, Create | Alter | Select) else None
    if text is not None:
        return type(statement), getattr(statement, "name", ""), bind(text, CATALOG).plan
    if isinstance(statement, CreateFunction):
        signature = COMMENT.sub(" ", f"{statement.parameters}) {statement.returns}")
        return statement.name, statement.place, "".join(signature.split())
    return type(statement) if isinstance(statement, Explain) else statement


@given(st.data())
def test_the_layout_means_the_same_keeps_comments_and_is_stable(data):
    text = data.draw(st.sampled_from([" ".join(each) for each in TEXTS] + EXAMPLES), label="text")
    words = re.split(r"\s+|(?<=[(,])|(?=[),])", WHOLE.sub(lambda each: each[0].replace(" ", "\0"), text.strip()))
    gaps = st.sampled_from(
        [" "] * 6 + ["\n", "\n\n", " -- a; b\n", "\n-- it's\n", " /* c */ ", "\n/* d\n e */\n", " /* f */\n"]
    )
    written = "".join(word + data.draw(gaps) for word in words if word).replace("\0", " ")
    if written.lstrip().upper().startswith(("EXPLAIN", "SHOW")):
        written = text
    laid = layout(written)
    assert layout(laid) == laid
    assert COMMENT.findall(laid) == COMMENT.findall(written)
    assert [*map(meaning, script(laid))] == [*map(meaning, script(written))]
    assert laid.endswith(";\n") or COMMENT.search(laid)


@pytest.mark.parametrize(
    ("text", "error"),
    [("CREATE VIEW v AS SELECT FROM x", QueryRefusedError), ("CREATE INDEX i", OptionError), ("SELECT '", OptionError)],
)
def test_what_is_no_statement_is_refused(text, error):
    with pytest.raises(error):
        layout(text)
