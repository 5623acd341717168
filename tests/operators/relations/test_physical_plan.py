from upstream.operators.relations.physical_plan import parts
from upstream.operators.relations.plan.identity import identity
from upstream.operators.relations.plan.nodes import Changes, SetOperation, TimeRange, WindowOver

from .checking import S, compiled


def test_parts_come_after_their_inputs_and_equal_parts_have_equal_keys():
    plan = SetOperation(WindowOver(S, TimeRange(3)), WindowOver(S, TimeRange(3)), "union", True)
    found = list(parts(plan, compiled))
    keys = [part.key for part in found]
    assert keys[:2] == keys[2:4]
    assert len(set(keys)) == 3
    for place, part in enumerate(found):
        assert set(part.inputs) <= set(keys[:place])
    assert [part.stream for part in found] == ["s", "", "s", "", ""]


def test_what_is_given_ends_the_plan():
    relation = WindowOver(S, TimeRange(3))
    given, top = parts(Changes(relation, "istream"), compiled, given=[relation])
    assert (given.key, given.stream, given.inputs) == (identity(relation), "", ())
    assert top.inputs == (given.key,)
