"""What relations contain between two steps: from the state, or computed again from the relations below."""

import polars as pl
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from upstream.operators.relations.plan import nodes
from upstream.operators.relations.zsets import BEGINNING
from upstream.operators.state.store import DictStore

from . import checking as c

S5 = nodes.WindowOver(c.S, nodes.TimeRange(5))
POSITIVE = nodes.Where(nodes.WindowOver(c.S, nodes.UnboundedWindow()), c.call("gt", c.V, c.constant(0)))


EVER, EVER_R = nodes.WindowOver(c.S, nodes.UnboundedWindow()), nodes.WindowOver(c.R, nodes.UnboundedWindow())
KEYS, OTHER_KEYS = nodes.Project(EVER, (("k", c.K),)), nodes.Project(EVER_R, (("j", c.J),))
AGGREGATES = (
    c.N,
    nodes.Aggregation("s", "sum", (c.V,), c.LONG),
    nodes.Aggregation("d", "count", (c.V,), c.LONG, distinct=True),
    nodes.Aggregation("m", "max", (c.V,), c.LONG),
    nodes.Aggregation("l", "collect_set", (c.V,), pa.list_(c.LONG)),
)
KEPT = {
    "groups": nodes.Aggregate(EVER, (("k", c.K),), AGGREGATES),
    "the whole": nodes.Aggregate(POSITIVE, (), AGGREGATES),
    "distinct": nodes.Distinct(KEYS),
    "copies": nodes.Copies(nodes.Project(EVER, (("v", c.V),)), "copy"),
    "except": nodes.SetOperation(KEYS, OTHER_KEYS, "except", True),
    "intersect": nodes.SetOperation(KEYS, OTHER_KEYS, "intersect", False),
    "first": nodes.Top(EVER, (nodes.Order(c.V, descending=True),), 2, (c.K,)),
    "newest": nodes.WindowOver(c.S, nodes.RowWindow(2, ("k",))),
    "inner": nodes.Join(EVER, EVER_R, "inner", ((c.K, c.J),)),
    "semi": nodes.Join(S5, EVER_R, "semi", ((c.K, c.J),), c.call("lt", c.V, c.W)),
    "cross": nodes.Join(EVER, EVER_R, "left", (), c.call("lt", c.V, c.W)),
}
PADDED = {
    **{how: nodes.Join(EVER, EVER_R, how, ((c.K, c.J),)) for how in ("left", "right", "full", "anti")},
    "not in": nodes.Join(EVER, EVER_R, "null_aware_anti", ((c.K, c.J),)),
    "not in of some": nodes.Join(EVER, EVER_R, "null_aware_anti", ((c.V, c.W), (c.K, c.J))),
}


def over(plan, what):
    """Return a relation over another one, by another operator than those that run."""
    name = plan.schema.names[0]
    first = c.column(name, plan.schema.field(name).type)
    match what:
        case "projected":
            return nodes.Project(plan, ((f"{name} of it", first),))
        case "counted":
            return nodes.Aggregate(plan, ((name, first),), (nodes.Aggregation("c", "count", (), c.LONG),))
        case "joined":
            on = c.column("x", first.type), {c.TEXT: c.J, c.LONG: c.W}[first.type]
            return nodes.Join(
                nodes.Project(plan, (("x", first),)), nodes.WindowOver(c.R, nodes.Latest()), "left", (on,)
            )
    return plan


@given(
    given=c.arrivals(),
    after=st.integers(1, 4),
    name=st.sampled_from([*KEPT, *PADDED]),
    what=st.sampled_from(["itself", "projected", "counted", "joined"]),
    restart=st.booleans(),
    collapse=st.tuples(st.booleans(), st.booleans()),
)
def test_a_query_over_a_window_without_an_end_begins_with_what_an_operator_has_kept(
    given, after, name, what, restart, collapse
):
    """The window has kept no row: what is above it has."""
    base = {**KEPT, **PADDED}[name]
    plan = over(base, what)
    whole, _ = c.evaluated({"q": plan}, given.steps)
    store, evaluation, found, joined = DictStore(), None, [], None
    for number, (rows, bound) in enumerate(given.steps):
        if evaluation is None or restart:
            evaluation = c.added({"newest": nodes.WindowOver(c.R, nodes.Latest())}, store)
            evaluation.add("base", base, collapse=collapse[0])
            if joined is not None:
                evaluation.add("q", plan, collapse=collapse[1])
        if joined is None and (number >= after or number == len(given.steps) - 1):
            evaluation.add("q", plan, collapse=collapse[1])
            joined = bound
        outcome = evaluation.step(c.frames(rows), bound)
        assert not outcome.failed
        found += [outcome.changes["q"]] if "q" in outcome.changes else []
        evaluation.save()
        if joined is None:
            continue
        if name in PADDED and evaluation.whole_from("q") is None:
            assert any(None in row[1:3] for some in given.rows.values() for row in some)
            return
        assert evaluation.whole_from("q") == BEGINNING
        for tau in [bound - 1] if collapse[1] else range(joined - 1, min(bound, c.END)):
            assert c.at(pl.concat(found), tau) == c.at(whole["q"], tau), tau


def test_rows_that_a_join_gives_without_a_partner_and_does_not_keep_are_missed():
    for how, side in (("left", "s"), ("anti", "s"), ("full", "r"), ("right", "r")):
        for key in ("a", None):
            evaluation = c.added({"base": PADDED[how]}, DictStore())
            stream = {"s": c.S, "r": c.R}[side]
            evaluation.step({side: c.frame(stream, [(1, key, 1, 0, False)])}, 3)
            evaluation.add("q", PADDED[how])
            changes = evaluation.step({}, 4).changes["q"]
            assert changes.height == (key is not None)
            assert evaluation.whole_from("q") == (BEGINNING if key else None)
