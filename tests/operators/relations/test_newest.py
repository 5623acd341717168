"""Windows by rows: the newest by event time, whatever the order of arrival."""

from collections import Counter
from dataclasses import replace

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.conf.errors import CheckpointError, OptionError, QueryRefusedError
from upstream.core.rows.exact_integers import LOWEST
from upstream.operators.relations.arrangement import OperatorState
from upstream.operators.relations.evaluation import Evaluation
from upstream.operators.relations.newest import NewestByArrival, NewestWindow
from upstream.operators.relations.plan import nodes
from upstream.operators.relations.plan.nodes import Latest, RowWindow, WindowOver
from upstream.operators.relations.streams import SEQUENCE, TOMBSTONE
from upstream.operators.relations.zsets import BEGINNING, TIME, WEIGHT, Span
from upstream.operators.state.store import CountingStore, DictStore

from . import checking as c
from .checking import LARGE, LONG, TEXT, S, arrivals, check, window


@pytest.mark.parametrize(
    "kind", [RowWindow(1), RowWindow(2), RowWindow(3, ("k",)), RowWindow(1, ("k",)), RowWindow(2, ("k", "v"))], ids=str
)
@given(given=arrivals())
def test_the_newest_rows_are_those_that_sql_finds(kind, given):
    check(*window(S, kind), given)


@given(given=arrivals())
def test_the_latest_row_of_each_key_is_there_until_a_tombstone(given):
    check(*window(S, Latest()), given)


@given(given=arrivals(), n=st.integers(1, 3))
def test_a_predicate_within_the_brackets_is_before_the_cut(given, n):
    plan = WindowOver(S, RowWindow(n, ("k",), LARGE))
    newest = f"QUALIFY ROW_NUMBER() OVER (PARTITION BY k ORDER BY t DESC, seq DESC) <= {n}"
    check(plan, f"SELECT t, k, v FROM s WHERE NOT dead AND t <= $tau AND v > 1 {newest}", given)


SCHEMA = pa.schema([("t", LONG), ("k", TEXT)])


def rows(*times):
    stream = {"t": times, "k": ["a"] * len(times), "__sequence": range(len(times))}
    return pl.DataFrame({**stream, "__tombstone": [False] * len(times), TIME: times, WEIGHT: [1] * len(times)})


def test_state_is_n_rows_of_each_partition_and_those_that_wait():
    state = OperatorState.in_memory()
    operator = NewestWindow(SCHEMA, 2, ["k"], None, False, state)
    operator.step([rows(*range(50))], Span.first(41))
    assert state.rows == 2 + 9
    contents = operator.contents()
    assert contents is not None
    assert sorted(contents["t"]) == [39, 40]


def test_a_tombstone_takes_its_key_out_of_the_state():
    state = OperatorState.in_memory()
    operator = NewestWindow(SCHEMA, 1, ["k"], None, True, state)
    deleted = rows(3).with_columns(pl.lit(True).alias("__tombstone"))
    assert operator.step([rows(1)], Span.first(2)).rows() == [(1, "a", 1, 1)]
    assert operator.step([deleted], Span(2, 4, 1)).rows() == [(1, "a", 3, -1)]
    assert state.rows == 0


def test_at_equal_times_the_greater_sequence_is_newer():
    operator = NewestWindow(SCHEMA, 1, ["k"], None, False, OperatorState.in_memory())
    two = rows(5, 5).with_columns(pl.Series("__sequence", [8, 3]), pl.Series("t", [80, 30]))
    assert operator.step([two], Span.first(6)).rows() == [(80, "a", 5, 1)]


NEWEST_S, SQL_S = c.window(c.S, nodes.Latest())
NEWEST_R, SQL_R = c.window(c.R, nodes.Latest())
SQL_S, SQL_R = f"({SQL_S})", f"({SQL_R})"
NAMES = nodes.Stream("names", pa.schema([("a", c.LONG), ("name", c.TEXT)]), static=True)
NAMED = [(0, "none"), (2, "two"), (5, "five")]
VALUES_S, VALUES_R = nodes.Project(NEWEST_S, (("v", c.V),)), nodes.Project(NEWEST_R, (("w", c.W),))
POSITIVE = nodes.Where(NEWEST_S, c.call("gt", c.V, c.constant(0)))
RENAMED = nodes.Project(NEWEST_R, (("w", c.W), ("x", c.J)))
LESS = c.call("lt", c.V, c.W)
BY_V = "OVER (PARTITION BY v ORDER BY t)"
PLANS = {
    "rows": (NEWEST_S, f"FROM {SQL_S}"),
    "groups": (nodes.GroupAggregates(NEWEST_S, (("v", c.V),), (c.N,)), f"SELECT v, count(*) FROM {SQL_S} GROUP BY v"),
    "all": (nodes.GroupAggregates(NEWEST_S, (), (c.N,)), f"SELECT count(*) FROM {SQL_S}"),
    "pairs": (nodes.Join(NEWEST_S, NEWEST_R, "inner", ((c.V, c.W),)), f"FROM {SQL_S} JOIN {SQL_R} ON v = w"),
    "full": (nodes.Join(NEWEST_S, NEWEST_R, "full", ((c.K, c.J),)), f"FROM {SQL_S} FULL JOIN {SQL_R} ON k = j"),
    "by key": (
        nodes.Join(POSITIVE, RENAMED, "inner", ((c.K, c.column("x", c.TEXT)),)),
        f"FROM {SQL_S} JOIN (SELECT w, j AS x FROM {SQL_R}) ON k = x WHERE v > 0",
    ),
    "less": (
        nodes.Join(NEWEST_S, RENAMED, "left", ((c.K, c.column("x", c.TEXT)),), LESS),
        f"FROM {SQL_S} LEFT JOIN (SELECT w, j AS x FROM {SQL_R}) ON k = x AND v < w",
    ),
    "met": (
        nodes.Join(POSITIVE, NEWEST_R, "semi", ((c.K, c.J),), LESS),
        f"FROM {SQL_S} SEMI JOIN {SQL_R} ON k = j AND v < w WHERE v > 0",
    ),
    "unmet": (
        nodes.Join(NEWEST_S, NEWEST_R, "anti", ((c.K, c.J),), LESS),
        f"FROM {SQL_S} ANTI JOIN {SQL_R} ON k = j AND v < w",
    ),
    "values": (nodes.Distinct(VALUES_S), f"SELECT DISTINCT v FROM {SQL_S}"),
    "missing": (
        nodes.SetOperation(VALUES_S, VALUES_R, "except", False),
        f"SELECT v FROM {SQL_S} EXCEPT SELECT w FROM {SQL_R}",
    ),
    "first": (
        nodes.Top(POSITIVE, (nodes.Order(c.V, descending=True),), 2),
        f"FROM {SQL_S} WHERE v > 0 ORDER BY v DESC, t NULLS FIRST, k NULLS FIRST LIMIT 2",
    ),
    "ranks": (
        nodes.WindowFunctions(POSITIVE, (nodes.Order(c.T),), (c.V,), c.FUNCTIONS),
        f"SELECT t, k, v, rank() {BY_V}, lag(v) {BY_V[:-1]}, k NULLS FIRST), sum(v) {BY_V} FROM {SQL_S} WHERE v > 0",
    ),
    "named": (
        nodes.Join(NEWEST_S, nodes.WindowOver(NAMES, nodes.UnboundedWindow()), "left", ((c.V, c.column("a")),)),
        f"FROM {SQL_S} LEFT JOIN (VALUES {', '.join(map(str, NAMED))}) x(a, name) ON v = a",
    ),
}
TIMES, KEYS = st.integers(0, 9), st.sampled_from(["a", "b", "c", None])
ROWS = st.tuples(st.sampled_from("sr"), TIMES, KEYS, st.sampled_from([0, 1, 2, 5, None]), st.booleans())


@st.composite
def steps(draw, *, kept):
    """Rows in any order, in any split, with low-watermarks that are kept or not, and times of arrival that may rest."""
    drawn = [
        (name, (*row, number, dead)) for number, (name, *row, dead) in enumerate(draw(st.lists(ROWS, max_size=14)))
    ]
    waiting, found, bound, now = draw(st.permutations(drawn)), [], -2, 100
    while waiting:
        size = draw(st.integers(1, len(waiting)))
        taken, waiting = waiting[:size], waiting[size:]
        most = min((row[0] for _, row in waiting), default=11) if kept else 11
        bound, now = max(bound, draw(st.integers(-1, most))), now + draw(st.integers(0, 2))
        found.append(({name: [row for of, row in taken if of == name] for name in "sr"}, bound, now))
    return [*found, ({"s": [], "r": []}, max(bound, 11), now)]


def names():
    rows = [(*row, number, False) for number, row in enumerate(NAMED)]
    kinds = {"a": pl.Int64, "name": pl.Utf8, SEQUENCE: pl.Int64, TOMBSTONE: pl.Boolean}
    return pl.DataFrame(rows, schema=kinds, orient="row")


class Running:
    """All plans by the clock of arrival, each step from the store of the one before or not."""

    def __init__(self, restart, collapse=False):
        self.store, self.restart, self.evaluation, self.collapse = DictStore(), restart, None, collapse
        self.began = False

    def step(self, rows, bound, now):
        if self.restart or self.evaluation is None:
            self.evaluation = Evaluation(self.store, c.compiled, clock="arrival")
            for name, (plan, _) in PLANS.items():
                self.evaluation.add(name, plan, collapse=self.collapse)
        streams = c.frames(rows)
        if not self.began:
            streams["names"], self.began = names(), True
        outcome = self.evaluation.step(streams, bound, now=now)
        assert not outcome.failed, outcome.failed
        self.evaluation.save()
        return outcome


def checked(given, restart, collapse=False):
    """Check each step against the query over what has arrived, and return the rows that were put aside."""
    running, last = Running(restart, collapse), LOWEST
    arrived, so_far, aside = {"s": [], "r": []}, {name: [] for name in PLANS}, []
    for rows, bound, now in given:
        outcome = running.step(rows, bound, now)
        time = running.evaluation.now
        assert time == max(now, last + 1)
        last = time
        late = {name: Counter(found.drop(TOMBSTONE).rows()) for name, found in outcome.late.items()}
        for name in "sr":
            put = late.get(name, Counter())
            aside.append((name, put))
            arrived[name] += [row for row in rows[name] if put[row[:3]] == 0 or row[4]]
        database = c.Database(arrived)
        for name, (_, sql) in PLANS.items():
            changes = outcome.changes[name]
            assert set(changes[TIME]) <= {BEGINNING, time}
            so_far[name].append(changes)
            assert not collapse or set(Counter(row[:-1] for row in changes.rows()).values()) <= {1}
            assert c.at(pl.concat(so_far[name]), time) == database.at(sql, c.END), (name, rows)
    return aside


@given(given=steps(kept=True), restart=st.booleans(), collapse=st.booleans())
def test_after_each_step_the_relation_is_that_of_the_newest_rows_that_have_arrived(given, restart, collapse):
    assert not any(put for _, put in checked(given, restart, collapse))


def test_a_join_by_the_key_of_both_sides_keeps_no_rows_of_its_own():
    evaluation = c.added({"full": PLANS["full"][0]}, DictStore(), clock="arrival")
    rows = {"s": [(1, "a", 1, 0, False), (1, "b", 1, 1, False)], "r": [(1, "a", 2, 0, False)]}
    evaluation.step(c.frames(rows), 0, now=1)
    assert evaluation.rows_kept == 3


@given(given=steps(kept=False), restart=st.booleans())
def test_rows_below_the_low_watermark_count_or_are_put_aside_if_they_might_bring_back_what_was_deleted(given, restart):
    aside = iter(checked(given, restart))
    kept, forgotten, before = {"s": {}, "r": {}}, {"s": LOWEST, "r": LOWEST}, LOWEST
    for rows, bound, _ in given:
        for name in "sr":
            put, mine, of_key = Counter(), kept[name], {}
            for row in rows[name]:
                of_key.setdefault(row[1], []).append(row)
            for key, some in of_key.items():
                sure = [row for row in some if key in mine or row[0] > forgotten[name]]
                if sure:
                    mine[key] = max([*sure, *([mine[key]] if key in mine else [])], key=lambda row: (row[0], row[3]))
                else:
                    put.update(row[:3] for row in some if not row[4])
            over = [key for key, row in mine.items() if row[4] and row[0] < bound]
            forgotten[name] = max([forgotten[name], *(mine.pop(key)[0] for key in over)])
            assert next(aside) == (name, put)
            assert all(time < before for time, *_ in put)
        before = bound


@given(given=steps(kept=False), after=st.integers(0, 3), name=st.sampled_from([*PLANS]), same=st.booleans())
def test_a_query_that_comes_later_begins_with_what_is_there(given, after, name, same):
    plan = PLANS[name][0]
    one, two, found, whole = Running(restart=True), DictStore(), [], []
    for number, (rows, bound, now) in enumerate(given):
        whole.append(one.step(rows, bound, now).changes[name])
        later = Evaluation(two, c.compiled, clock="arrival")
        for other in (name,) if same else ("rows", "full", "named"):  # among them all windows
            later.add(other, PLANS[other][0])
        if number >= min(after, len(given) - 1):
            later.add("added", plan)
        streams = c.frames(rows) | ({"names": names()} if number == 0 else {})
        changes = later.step(streams, bound, now=now).changes
        later.save()
        if "added" in changes:
            found.append(changes["added"])
            assert c.at(pl.concat(found), later.now) == c.at(pl.concat(whole), later.now)
            assert later.complete_from("added") == BEGINNING


@given(given=steps(kept=True))
def test_a_stream_of_changes_is_what_differs_between_two_steps(given):
    plan = PLANS["groups"][0]
    plans = {"groups": plan, **{kind: nodes.Changes(plan, kind) for kind in ("istream", "dstream", "rstream")}}
    evaluation, before, parts = c.added(plans, DictStore(), clock="arrival"), Counter(), []
    for rows, bound, now in given:
        changes = evaluation.step(c.frames(rows), bound, now=now).changes
        parts.append(changes["groups"])
        after, time = c.at(pl.concat(parts), evaluation.now), evaluation.now
        assert c.steps_of(changes["istream"]) == {(*row, time): n for row, n in (after - before).items()}
        assert c.steps_of(changes["dstream"]) == {(*row, time): n for row, n in (before - after).items()}
        everything = {(*row, time): n for row, n in after.items()} if after != before else {}
        assert c.steps_of(changes["rstream"]) == everything
        before = after


def stepped(operator, number, promised, *rows):
    given = c.frame(c.S, rows).with_columns(pl.col("t").alias(TIME), pl.lit(1, pl.Int64).alias(WEIGHT))
    return operator.step([given], Span(number, number + 1, number - 1, promised)).rows()


def test_a_tombstone_is_kept_until_the_low_watermark_has_passed_it():
    state = OperatorState.in_memory()
    operator = NewestByArrival(c.S.schema, ["k"], state)
    assert stepped(operator, 1, 0, (5, "a", 1, 0, True)) == []
    assert stepped(operator, 2, 5, (4, "a", 1, 1, False)) == []
    assert state.rows == 2  # the tombstone, and its key by time: a row of time 5 may still come
    assert operator.late().height == 0
    assert stepped(operator, 3, 6) == []
    assert state.rows == 0
    assert stepped(operator, 4, 6, (5, "a", 1, 2, False), (3, "b", 1, 3, False), (5, "c", 1, 4, True)) == []
    assert sorted(operator.late()["k"]) == ["a", "b"]
    assert stepped(operator, 5, 6, (6, "b", 1, 5, False), (2, "b", 1, 6, False)) == [(6, "b", 1, 5, 1)]
    assert operator.late().height == 0


def test_the_latest_deletion_that_was_forgotten_counts():
    operator = NewestByArrival(c.S.schema, ["k"], OperatorState.in_memory())
    assert len(stepped(operator, 1, 0, (1, "a", 1, 0, False), (9, "b", 1, 1, True))) == 1
    assert stepped(operator, 2, 10) == []
    assert stepped(operator, 3, 10, (2, "a", 1, 2, True)) == [(1, "a", 1, 3, -1)]  # also forgotten, and older
    assert stepped(operator, 4, 10, (8, "b", 1, 3, False)) == []
    assert operator.late()["k"].to_list() == ["b"]


def test_newest_rows_that_nobody_has_kept_are_never_sure_to_be_all():
    evaluation = c.added({"other": NEWEST_R}, DictStore(), clock="arrival")
    evaluation.step({}, 5, now=1)
    evaluation.add("q", NEWEST_S)
    evaluation.step({}, 5, now=2)
    assert evaluation.complete_from("q") is None


def test_an_older_row_and_one_that_changes_nothing_write_nothing():
    store = CountingStore(DictStore())
    evaluation = c.added({"q": NEWEST_S}, store, clock="arrival")
    evaluation.step({"s": c.frame(c.S, [(5, "a", 1, 0, False)])}, 0, now=1)
    store.written = 0
    assert evaluation.step({"s": c.frame(c.S, [(4, "a", 2, 1, False)])}, 0, now=2).changes["q"].height == 0
    assert evaluation.step({}, 9, now=3).changes["q"].height == 0
    assert store.written == 0


def test_rows_that_two_windows_put_aside_and_rows_without_a_time_are_late_once():
    plans = {"q": NEWEST_S, "p": nodes.WindowOver(nodes.Sample(c.S, 100.0), nodes.Latest())}
    evaluation = c.added(plans, DictStore(), clock="arrival")
    came = {"s": c.frame(c.S, [(5, "a", 1, 0, True), (None, "d", 1, 9, False)])}
    assert evaluation.step(came, 6, now=1).late["s"].rows() == [(None, "d", 1, False)]
    late = evaluation.step({"s": c.frame(c.S, [(4, "a", 2, 1, False), (4, "b", 2, 2, False)])}, 6, now=2).late["s"]
    assert late.rows() == [(4, "a", 2, False), (4, "b", 2, False)]


def test_what_makes_no_sense_is_refused():
    store = DictStore()
    evaluation = Evaluation(store, c.compiled, clock="arrival")
    with pytest.raises(QueryRefusedError, match="Range"):
        evaluation.add("q", nodes.Join(NEWEST_S, nodes.WindowOver(c.R, nodes.TimeRange(5)), "inner", ((c.K, c.J),)))
    evaluation.add("q", NEWEST_S)
    with pytest.raises(OptionError, match="now=None"):
        evaluation.step({}, 5)
    evaluation.step({}, 5, now=3)
    evaluation.save()
    with pytest.raises(CheckpointError, match="clock of arrival"):
        Evaluation(store, c.compiled)
    by_event = Evaluation(DictStore(), c.compiled)
    by_event.add("q", replace(NEWEST_S))
    with pytest.raises(OptionError, match="now=3"):
        by_event.step({}, 5, now=3)
