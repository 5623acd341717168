"""Changes add up the same however they are cut, and each does what it says."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from upstream.queries.registry.changes import Change
from upstream.queries.registry.state import State

_NAMES = st.sampled_from(["a", "b", "c"])
_TEXTS = st.sampled_from(["one", "two"])
CHANGES = st.one_of(
    st.builds(
        lambda name, text, weight, active: Change("register", name, text, weight=weight, active=active),
        _NAMES,
        _TEXTS,
        st.none() | st.just(2.0),
        st.none() | st.booleans(),
    ),
    st.builds(
        lambda name, text, weight: Change("alter", name, text, weight=weight),
        _NAMES,
        st.none() | _TEXTS,
        st.none() | st.just(3.0),
    ),
    st.builds(Change, st.sampled_from(["activate", "drop", "drop_view"]), _NAMES),
    st.builds(lambda name: Change("drop", name, delete_table=True), _NAMES),
    st.builds(lambda name: Change("deactivate", name, reason="asked"), _NAMES),
    st.builds(lambda name, started: Change("fail", name, reason="broken", id=started), _NAMES, st.integers(1, 12)),
    st.builds(lambda name, text: Change("view", name, text), _NAMES, _TEXTS),
)


@given(st.lists(CHANGES, max_size=12), st.data())
def test_changes_add_up_the_same_however_they_are_cut(changes: list[Change], data: st.DataObject) -> None:
    whole = State().after(changes)
    assert whole.version == len(changes)
    cut = data.draw(st.integers(0, len(changes)))
    before = State().after(changes[:cut])
    kept = replace(
        before,
        entries=dict(before.entries),
        views=dict(before.views),
        deleted=dict(before.deleted),
        relations=dict(before.relations),
    )
    assert before.after(changes[cut:]) == whole
    assert before == kept, "a state does not change"


def _is_there(kinds: list[str]) -> bool:
    starts = [kind for kind in kinds if kind in ("register", "drop")]
    return bool(starts) and starts[-1] == "register"


@given(st.lists(CHANGES, max_size=12))
def test_each_query_is_what_its_own_last_changes_say(changes: list[Change]) -> None:
    """Against a second reading: of one name at a time, from its last registration on."""
    state = State().after(changes)
    for name in "abc":
        own = [(at, each) for at, each in enumerate(changes, 1) if each.name == name]
        views = [each for _, each in own if each.kind in ("view", "drop_view")]
        assert (name in state.views) == bool(views and views[-1].kind == "view")
        starts = [at for at, (_, each) in enumerate(own) if each.kind in ("register", "drop")]
        kinds = [each.kind for _, each in own]
        ends = [version for at, (version, each) in enumerate(own) if each.delete_table and _is_there(kinds[:at])]
        assert state.deleted.get(name) == (ends[-1] if ends else None)
        if not starts or own[starts[-1]][1].kind == "drop":
            assert name not in state.entries
            continue
        first, *rest = own[starts[-1] :]
        started, active, text, weight = first[0], first[1].active is not False, first[1].text, first[1].weight or 1.0
        for at, each in rest:
            if each.kind == "alter":
                started = at if each.text not in (None, text) else started
                text, weight = each.text or text, each.weight or weight
            if each.kind == "activate" and not active:
                started, active = at, True
            if each.kind == "deactivate" or (each.kind == "fail" and each.id == started):
                active = False
        found = state.entries[name]
        assert (found.id, found.active, found.text, found.weight) == (started, active, text, weight)


def test_a_failure_of_an_earlier_incarnation_changes_nothing() -> None:
    register, failed = Change("register", "q", "one"), Change("fail", "q", reason="overflow", id=1)
    assert State().after([register, failed]).entries["q"].reason == "overflow"
    altered = State().after([register, Change("alter", "q", "two"), failed]).entries["q"]
    assert altered.active
    assert altered.reason is None
    assert altered.id == 2


def test_a_reason_leaves_with_the_activation() -> None:
    state = State().after([Change("register", "q", "one"), Change("deactivate", "q", reason="asked")])
    assert state.entries["q"].reason == "asked"
    again = state.after([Change("activate", "q")]).entries["q"]
    assert again.active
    assert again.reason is None
    assert again.id == 3
    assert state.after([Change("activate", "q"), Change("activate", "q")]).entries["q"].id == 3


def test_an_equal_text_begins_nothing_again() -> None:
    state = State().after([Change("register", "q", "one"), Change("alter", "q", "one", weight=2.0)])
    assert (state.entries["q"].id, state.entries["q"].weight) == (1, 2.0)


def test_incarnations_that_have_failed_are_remembered() -> None:
    register, failed = Change("register", "q", "one"), Change("fail", "q", reason="overflow", id=1)
    state = State().after([register, failed, Change("activate", "q")])
    assert state.failed == {1}
    assert state.after([failed, Change("drop", "q")]).failed == {1}
    assert State().after([register, Change("alter", "q", "two"), failed]).failed == set()
