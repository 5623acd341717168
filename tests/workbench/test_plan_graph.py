"""The graph of a plan: parts of it, ways through it, and many queries in parts."""

from upstream.sink.figures.waits import StageBacklog
from upstream.workbench.plan_graph import PlanGraph, PlanNode, job_graph, received, with_partition

from .hosted import source, state


def graph(**inputs):
    nodes = {name: PlanNode(name, f"step {name}", "step", inputs=before) for name, before in inputs.items()}
    return PlanGraph(nodes, (StageBacklog("a", "a holds 3 rows"),))


DIAMOND = graph(a=(), b=("a",), c=("a",), d=("b", "c"), e=("d",))


def test_a_part_has_what_is_at_most_so_many_steps_before_its_root():
    part = DIAMOND.below("d", 1)
    assert {name: (each.inputs, each.hidden) for name, each in part.nodes.items()} == {
        "b": ((), 1),
        "c": ((), 1),
        "d": (("b", "c"), 0),
    }
    assert part.backlogs == DIAMOND.backlogs
    assert DIAMOND.below("e", 9).nodes.keys() == DIAMOND.nodes.keys()
    assert DIAMOND.below("a", 9).nodes.keys() == {"a"}


def test_the_way_from_a_step_to_the_end_is_the_shortest():
    assert DIAMOND.path("c") == ["c", "d", "e"]
    assert DIAMOND.path("e") == ["e"]
    assert DIAMOND.path("other") == []
    assert graph(a=(), b=("a",), c=("b", "a")).path("a") == ["a", "c"]


def test_a_partition_is_a_step_before_its_source():
    found = with_partition(DIAMOND, "in/" + "x" * 80, "a")
    (first, *_) = found.nodes.values()
    assert first.kind == "partition"
    assert len(first.title) < 75
    assert found.nodes["a"].inputs == (first.name,)
    assert next(iter(found.below("e", 99).nodes)) == first.name


def test_a_box_has_figures_with_their_units_and_who_shares_it():
    node = PlanNode("n", "Latest", "operator", ("keeps one row",), shared=("a", "b", "c", "d"), hidden=2)
    figures = (("rows held", 12_000, "rows"), ("staleness p99", 1.23456, "s"), ("cost", None, "s"), ("to", "noon", ""))
    box = PlanNode(**{**vars(node), "figures": figures}).box
    assert box.kind == "operator shared"
    assert box.facts == (
        "keeps one row",
        "rows held: 12,000",
        "staleness p99: 1.2 s",
        "to: noon",
        "shared with a, b, c and others",
        "2 inputs are not shown",
    )
    assert PlanNode(**{**vars(node), "figures": figures}).to_json()["figures"][0] == {
        "name": "rows held",
        "value": 12_000,
        "unit": "rows",
    }


def test_a_job_of_many_queries_has_its_streams_and_some_of_its_queries():
    reads = {f"q{number}": ("a", "b") if number % 2 else ("b",) for number in range(1000)}
    found = job_graph(reads, {"b": source(p=state(5, 7), q=state(6, 8))}, 3)
    assert list(found.nodes) == ["stream:b", "stream:a", "query:q0", "query:q1", "query:q2", "more"]
    assert found.nodes["query:q1"].inputs == ("stream:a", "stream:b")
    assert {name: value for name, value, _ in found.nodes["stream:b"].figures}["rows received"] == 15
    assert "more" not in job_graph(dict(list(reads.items())[:3]), {}, 3).nodes


def test_rows_of_a_source():
    assert received(source(a=state(1, 3), b=state(2, 4))) == 7
