from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from upstream.hosting.changes import Change
from upstream.hosting.registry import RegistryTexts

_NAMES = st.sampled_from(["a", "b", "c"])
_TEXTS = st.sampled_from(["one", "two"])
_WEIGHTS = st.none() | st.sampled_from([2.0, 3.0])


def _one(kind: str, text: object = st.none(), **more: object) -> st.SearchStrategy[Change]:
    return st.builds(Change, st.just(kind), _NAMES, text, **more)  # type: ignore[arg-type]


CHANGES = st.one_of(
    _one("register", _TEXTS, weight=_WEIGHTS, active=st.none() | st.booleans()),
    _one("alter", st.none() | _TEXTS, weight=_WEIGHTS),
    _one("view", _TEXTS),
    *map(_one, ("activate", "drop", "drop_view")),
    _one("drop", delete_table=st.just(True)),
    _one("deactivate", reason=st.just("asked")),
    _one("fail", reason=st.just("broken"), id=st.integers(1, 12)),
)


@given(st.lists(CHANGES, max_size=12), st.data())
def test_changes_add_up_the_same_however_they_are_cut(changes, data):
    whole = RegistryTexts().after(changes)
    assert whole.version == len(changes)
    cut = data.draw(st.integers(0, len(changes)))
    before = RegistryTexts().after(changes[:cut])
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
@example([Change("register", "a", "one"), Change("alter", "a", "two"), Change("fail", "a", reason="old", id=1)])
@example([Change("register", "a", "one"), Change("alter", "a", "one", weight=3.0), Change("activate", "a")])
@example([Change("register", "a", "one"), Change("fail", "a", reason="x", id=1), Change("activate", "a")])
def test_each_query_is_what_its_own_last_changes_say(changes):
    """Against a second reading: of one name at a time, from its last registration on."""
    state = RegistryTexts().after(changes)
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
        reason = None
        started, active, text, weight = first[0], first[1].active is not False, first[1].text, first[1].weight or 1.0
        for at, each in rest:
            if each.kind == "alter":
                started = at if each.text not in (None, text) else started
                text, weight = each.text or text, each.weight or weight
            if each.kind == "activate" and not active:
                started, active, reason = at, True, None
            if active and (each.kind == "deactivate" or (each.kind == "fail" and each.id == started)):
                active, reason = False, each.reason
        found = state.entries[name]
        assert (found.id, found.active, found.reason) == (started, active, reason)
        assert (found.text, found.weight) == (text, weight)


def test_incarnations_that_have_failed_are_remembered():
    register, failed = Change("register", "q", "one"), Change("fail", "q", reason="overflow", id=1)
    state = RegistryTexts().after([register, failed, Change("activate", "q")])
    assert state.failed == {1}
    assert state.after([failed, Change("drop", "q")]).failed == {1}
    assert RegistryTexts().after([register, Change("alter", "q", "two"), failed]).failed == set()
