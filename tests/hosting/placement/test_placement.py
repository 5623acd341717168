"""Parts of a plan and their slots: what is gathered has one slot, the same in every process."""

from kit.continuous import relation

from upstream.hosting.placement.placement import Fragment, Placement, Route


def test_what_is_gathered_has_one_slot_that_depends_on_the_streams_or_on_the_plan():
    five, six = (relation(f"SELECT COUNT(*) AS n FROM trade [ROWS {n}]") for n in (5, 6))
    quotes = relation("SELECT COUNT(*) AS n FROM quote [ROWS 5]")
    route = (Route("trade", ()),)
    first = {n: [Fragment(each, route, ()).gathered_in(97) for each in (five, six, quotes)] for n in range(2)}
    assert first[0] == first[1]
    assert first[0][0] == first[0][1] != first[0][2]
    second = [Placement((), each).gathered_in(97) for each in (five, six, quotes)]
    assert len({*second}) == 3
    assert all(0 <= Placement((), each).gathered_in(2) < 2 for each in (five, six, quotes))


def test_the_slots_of_what_is_gathered_stay_the_same_for_good():
    plan = relation("SELECT COUNT(*) AS n FROM trade [ROWS 5]")
    assert Fragment(plan, (), ()).gathered_in(1000) == 74
