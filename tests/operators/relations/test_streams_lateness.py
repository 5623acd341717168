"""With a lateness, the results are those of all rows but the late ones, however rows are ordered and cut into steps."""

from collections import Counter
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.continuous import CATALOG, EPOCH
from kit.hosting import frame

from upstream.language import bind
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.plan.common_parts import shareable
from upstream.operators.relations.zsets import TIME
from upstream.operators.state.store import DictStore

TEXTS = (
    "SELECT DATE_TRUNC('HOUR', t) AS h, sym, COUNT(*) AS c, MAX(n) AS m FROM trade GROUP BY 1, 2",
    "SELECT sym, COUNT(*) AS c, MIN(n) AS m FROM trade [RANGE 20 MINUTES] GROUP BY sym",
    "SELECT sym, COUNT(*) AS c, SUM(n) AS s FROM trade [RANGE 20 MINUTES SLIDE 5 MINUTES] GROUP BY sym",
    "SELECT sym, COUNT(*) AS c FROM HOP(trade, t, INTERVAL '5' MINUTE, INTERVAL '20' MINUTE) GROUP BY sym",
    "SELECT sym, MAX(window_end) AS w, SUM(n) AS s FROM HOP(trade, t, INTERVAL '5' MINUTE, INTERVAL '20' MINUTE) GROUP BY sym",  # noqa: E501
    "SELECT window_end, COUNT(*) AS c FROM TUMBLE(trade, t, INTERVAL '15' MINUTE) GROUP BY window_end",
    "SELECT a.sym, COUNT(*) AS c, COUNT(b.t) AS d FROM trade a LEFT JOIN quote b ON a.sym = b.sym AND a.t BETWEEN b.t AND b.t + INTERVAL '10' MINUTE GROUP BY a.sym",  # noqa: E501
    "SELECT COUNT(*) AS c FROM (SELECT sym FROM trade [RANGE 20 MINUTES] EXCEPT SELECT sym FROM quote [RANGE 10 MINUTES]) x",  # noqa: E501
    "SELECT sym, COUNT(*) AS c FROM trade WHERE t > NOW() - INTERVAL '15' MINUTE GROUP BY sym",
    "SELECT a.sym, a.n FROM trade a JOIN quote b ON a.sym = b.sym AND a.t BETWEEN b.t AND b.t + INTERVAL '10' MINUTE",
)
LATENESS = 10
MINUTE_US = 60_000_000
START_US = int(EPOCH.timestamp()) * 1_000_000
STREAMS = {name: CATALOG.streams[name] for name in ("trade", "quote")}


def at(minute):
    return EPOCH + timedelta(minutes=minute)


def frames(rows):
    """Rows as `(stream, key, minute, number)`."""
    found = {}
    for name, stream in STREAMS.items():
        cells = [(key, 1.0, n, at(minute)) for stream_name, key, minute, n in rows if stream_name == name]
        found[name] = frame(stream, cells if name == "trade" else [(key, px, t) for key, px, _, t in cells])
    return found


def summed(table, changes):
    for *row, weight in changes.drop(TIME).rows():
        table[tuple(row)] += weight
    return +table


ROWS = st.tuples(
    st.sampled_from(("trade", "trade", "quote")), st.sampled_from("ab"), st.integers(-25, 12), st.integers(1, 3)
)


@pytest.mark.parametrize("text", TEXTS)
@given(
    net=st.booleans(),
    steps=st.lists(st.tuples(st.lists(ROWS, max_size=4), st.sampled_from((0, 1, 4, 30, 100))), max_size=8),
)
def test_results_are_those_of_the_rows_that_are_not_late(text, net, steps):
    lenient = shareable(bind(text, CATALOG.with_lateness(LATENESS * MINUTE_US)).plan)
    store = DictStore()
    evaluation = Evaluation(store)
    evaluation.add("q", lenient, collapse=net)
    low, table, taken = 30, Counter(), []
    for number, (some, more) in enumerate(steps):
        rows = [(name, key, low + ago, n + 10 * number) for name, key, ago, n in some]
        in_time = [each for each in rows if number == 0 or each[2] >= low - LATENESS]
        taken += in_time
        before, low = low, low + more
        outcome = evaluation.step(frames(rows), START_US + low * MINUTE_US)
        assert not outcome.failed
        assert {name: each.height for name, each in outcome.late.items()} == Counter(
            row[0] for row in rows if row not in in_time and f" {row[0]}" in text.replace("(", " ")
        )
        times = outcome.changes["q"][TIME].to_list()
        assert number == 0 or all(each >= START_US + before * MINUTE_US - 1 for each in times), "as of just before"
        summed(table, outcome.changes["q"])
        whole = Evaluation(DictStore())
        whole.add("q", shareable(bind(text, CATALOG).plan), collapse=True)
        once = whole.step(frames(taken), START_US + low * MINUTE_US)
        assert +table == summed(Counter(), once.changes["q"]), (number, low)
        evaluation.save()
        evaluation = Evaluation(store)
        evaluation.add("q", lenient, collapse=net)
