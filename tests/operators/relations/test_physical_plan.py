from upstream.operators.relations.physical_plan import parts
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.plan.nodes import Changes, SetOperation, TimeRange, WindowOver

from .checking import S, compiled


def test_parts_come_after_their_inputs_and_equal_parts_come_once():
    plan = SetOperation(WindowOver(S, TimeRange(3)), WindowOver(S, TimeRange(3)), "union", True)
    found = list(parts(plan, compiled))
    keys = [part.key for part in found]
    assert len(set(keys)) == len(keys) == 3
    for place, part in enumerate(found):
        assert set(part.inputs) <= set(keys[:place])
    assert [part.stream for part in found] == ["s", "", ""]
    assert found[-1].inputs == (keys[1], keys[1])


def test_what_is_given_ends_the_plan():
    relation = WindowOver(S, TimeRange(3))
    given, top = parts(Changes(relation, "istream"), compiled, given=[relation])
    assert (given.key, given.stream, given.inputs) == (identity(relation), "", ())
    assert top.inputs == (given.key,)
