import json
from dataclasses import replace

from kit.continuous import FORMS
from kit.hosting import Versions

from upstream.hosting.host_plan import HostPlan, HostPlans
from upstream.hosting.output import KnownQueries

TEXT = FORMS[0]
VERSIONS = Versions(
    {4: {"a": (1, TEXT), "b": (4, TEXT)}, 6: {"a": (1, TEXT), "c": (5, TEXT)}, 7: {"a": (7, TEXT), "c": (5, TEXT)}}
)


def plan(version):
    return HostPlans(VERSIONS, [0])(version)


def again(known):
    return KnownQueries(json.loads(json.dumps(known.to_json())))


def test_queries_that_begin_in_one_batch_are_a_generation():
    known = KnownQueries({})
    known.follow(plan(4))
    assert [known.generation(number) for number in (1, 4)] == [4, 4]
    known = again(known)
    known.follow(plan(6))
    assert [known.generation(number) for number in (1, 5)] == [4, 6]
    known.follow(plan(7))
    assert [known.generation(number) for number in (7, 5)] == [7, 6]


def test_a_query_that_failed_does_not_run_until_it_is_another_incarnation():
    known = KnownQueries({})
    known.follow(plan(6))
    known.fail([1], "first")
    known.fail([1], "second")
    known = again(known)
    known.follow(plan(6))
    assert known.failed == {1: "first"}
    assert [each.id for each in known.running(plan(6))] == [5]
    known.follow(plan(7))
    assert known.failed == {}
    assert [each.id for each in known.running(plan(7))] == [5, 7]


def test_work_for_the_second_stage_is_named_by_the_generation():
    known = KnownQueries({})
    known.follow(plan(4))
    one, two = plan(4).queries.values()
    assert known.job_name(one, one.pieces[0]) != known.job_name(two, two.pieces[0])
    piece = replace(one.pieces[0], fragment=replace(one.pieces[0].fragment, onward=()))
    assert known.job_name(one, piece) == known.job_name(two, piece) == f"{piece.name}@4"


def test_what_is_refused_has_failed():
    known = KnownQueries({})
    made = HostPlan(8, [0])
    made.refused[3] = "q", "no"
    known.follow(made)
    assert known.failed == {3: "no"}


def test_what_only_a_query_had_that_failed_is_cleared_when_it_leaves():
    versions = {4: {"a": (1, TEXT)}, 5: {"a": (5, TEXT)}, 6: {"a": (5, TEXT)}}
    for failed, clears in (([1], [False, True, False]), ([], [False, False, False])):
        known = KnownQueries({})
        for version, expected in zip(versions, clears, strict=True):
            known = again(known)
            known.follow(HostPlans(Versions(versions, failed=failed if version > 4 else ()), [0])(version))
            assert known.clears == expected
