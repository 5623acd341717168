import shutil
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kit.continuous import FORMS
from kit.failures import misused
from kit.registries import COUNTS, FAST, OF_FAST, STREAMS, begun, register

from upstream.conf.errors import CheckpointError, OptionError
from upstream.hosting.edits import record
from upstream.hosting.journal import Change, Journal, Settings
from upstream.hosting.registry import RegistryTexts, registry_at, registry_now, text_of
from upstream.language import bind


@pytest.fixture
def bound(monkeypatch):
    """The texts that are bound when a journal is folded."""
    texts: list[str] = []

    def noted(text: str, catalog: Any) -> Any:
        texts.append(text)
        return bind(text, catalog)

    monkeypatch.setattr("upstream.language.bind", noted)
    return texts


def test_queries_have_plans_and_places(checkpoint):
    register(checkpoint, "per_route", weight=2, buckets=3)
    registry = register(checkpoint, "idle", active=False)
    assert registry.version == 2
    query = registry.queries["per_route"]
    assert (query.id, query.weight, query.active, query.reason) == (1, 2.0, True, None)
    assert (query.buckets, query.location) == (3, "/lake/per_route")
    assert query.query.plan == bind(COUNTS, registry.catalog).plan
    assert list(registry.queries) == ["per_route", "idle"]
    assert list(registry.active) == ["per_route"]
    with pytest.raises(ValueError, match="not active"):
        _ = registry.queries["idle"].query


def test_every_version_can_be_had_in_any_order(checkpoint, tmp_path):
    for change in (
        Change("create", "a", COUNTS),
        Change("view", "fast", FAST),
        Change("create", "b", OF_FAST),
        Change("alter", "a", weight=4),
        Change("deactivate", "a", reason="too dear"),
        Change("alter", "a", FORMS[0]),
        Change("activate", "a"),
        Change("fail", "b", reason="overflow", id=3),
        Change("drop", "b"),
        Change("drop_view", "fast"),
        Change("create", "b", COUNTS),
    ):
        record(checkpoint, change)
    seen = {version: registry_at(checkpoint, version) for version in (11, 3, 7, 0, 5, 9, 1, 10, 2, 4, 8, 6)}
    for version, registry in seen.items():
        # Of another place, nothing is known yet.
        fresh = registry_at(shutil.copytree(checkpoint, str(tmp_path / str(version))), version)
        assert fresh == registry
        assert [each.bound for each in fresh.active.values()] == [each.bound for each in registry.active.values()]
    assert seen[3].queries["b"].query.views == ("fast",)
    assert [seen[at].queries["a"].id for at in (1, 4, 5, 6, 7)] == [1, 1, 1, 6, 7]
    assert seen[5].queries["a"].reason == "too dear"
    assert (seen[8].queries["b"].active, seen[8].queries["b"].reason) == (False, "overflow")
    assert seen[11].queries["b"].id == 11
    assert seen[10].catalog.names() == sorted(each.name for each in STREAMS)


def test_many_queries_bind_once_each(checkpoint, bound):
    journal = Journal(checkpoint)
    texts = [f"SELECT route_id, COUNT(*) AS n{at} FROM LATEST(buses) GROUP BY route_id" for at in range(100)]
    for at, text in enumerate(texts):
        assert journal.put(at + 1, Change("create", f"q{at}", text))
    before = registry_at(checkpoint, 100)
    assert len(before.active) == 100
    assert sorted(bound) == sorted(texts)
    bound.clear()
    after = register(checkpoint, "one_more")
    assert bound == [COUNTS] * 2  # the change is checked, then folded
    assert len(after.active) == 101
    assert all(after.queries[name] is each for name, each in before.queries.items())
    bound.clear()
    changed = record(checkpoint, Change("alter", "q7", weight=2))
    assert bound == []
    assert changed.queries["q7"].bound is before.queries["q7"].bound
    assert registry_at(checkpoint, 100) is before


def test_texts_that_are_no_longer_in_force_are_not_bound(checkpoint, bound):
    changes = [
        Change("create", "a", FORMS[0]),
        Change("alter", "a", COUNTS),
        Change("create", "b", FORMS[1]),
        Change("drop", "b"),
        Change("create", "c", FORMS[2], active=False),
    ]
    for at, change in enumerate(changes):
        Journal(checkpoint).put(at + 1, change)
    assert list(registry_at(checkpoint, 5).active) == ["a"]
    assert bound == [COUNTS]


def test_a_query_that_no_longer_binds_is_not_active(checkpoint):
    register(checkpoint, "good")
    Journal(checkpoint).put(2, Change("create", "bad", "SELECT vehicel_id FROM LATEST(buses)"))
    registry = registry_at(checkpoint, 2)
    assert list(registry.active) == ["good"]
    assert not registry.queries["bad"].active
    assert "did you mean 'vehicle_id'" in registry.queries["bad"].reason
    # And so for every process, also one that has the version before.
    assert record(checkpoint, Change("alter", "bad", weight=2)).queries["bad"].reason is not None


def test_a_checkpoint_that_begins_again_has_no_versions_of_the_one_before(checkpoint, tmp_path):
    register(checkpoint, "first")
    kept = registry_at(checkpoint, 1)
    shutil.rmtree(checkpoint)
    begun(tmp_path, to="/sea")
    register(checkpoint, "second")
    fresh = registry_at(checkpoint, 1)
    assert list(fresh.queries) == ["second"]
    assert fresh.queries["second"].location == "/sea/second"
    assert registry_at(checkpoint, 1, nonce=fresh.settings.nonce) is fresh
    assert kept.settings.nonce != fresh.settings.nonce


def test_with_the_nonce_nothing_is_read(checkpoint, monkeypatch):
    registry = register(checkpoint, "q")

    def refused(self: Journal) -> Settings | None:
        raise AssertionError

    monkeypatch.setattr(Journal, "settings", refused)
    assert registry_at(checkpoint, 1, nonce=registry.settings.nonce) is registry
    with pytest.raises(AssertionError):
        registry_at(checkpoint, 1, nonce="another")


def test_a_stream_more_is_seen(checkpoint):
    for streams in ((), STREAMS[:1]):
        Journal(checkpoint).write_settings(Settings("/lake", 8, streams))
        assert registry_at(checkpoint, 0).catalog.names() == [each.name for each in streams]


def test_what_was_known_long_ago_is_folded_again(checkpoint, tmp_path):
    known = register(checkpoint, "q0")
    for at in range(1, 40):
        register(checkpoint, f"q{at}")
    again = registry_at(checkpoint, 1)
    assert again == known
    assert again is not known, "so memory is bounded"
    for at in range(40):
        registry_at(begun(tmp_path / str(at)), 0)
    assert registry_at(checkpoint, 1) is not again


def test_a_place_without_a_registry_is_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="no registry"):
        registry_at(str(tmp_path), 0)
    with pytest.raises(CheckpointError, match="no change 1"):
        registry_at(begun(tmp_path), 1)


def test_texts_are_found_by_name(checkpoint):
    record(checkpoint, Change("view", "fast", FAST))
    registry = register(checkpoint, "per-route")
    assert text_of("Per-Route", registry) == COUNTS
    assert text_of("FAST", registry) == "SELECT * FROM `fast`"
    assert text_of(FAST, registry) == FAST
    for word in ("per-rout", " fas "):
        misused("did you mean", text_of, word, registry)


_NAMES = st.sampled_from(["a", "b", "c"])
_TEXTS = st.sampled_from(["one", "two"])
_WEIGHTS = st.none() | st.sampled_from([2.0, 3.0])


def _one(kind: str, text: object = st.none(), **more: object) -> st.SearchStrategy[Change]:
    return st.builds(Change, st.just(kind), _NAMES, text, **more)  # type: ignore[arg-type]


CHANGES = st.one_of(
    _one("create", _TEXTS, weight=_WEIGHTS, active=st.none() | st.booleans()),
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
    starts = [kind for kind in kinds if kind in ("create", "drop")]
    return bool(starts) and starts[-1] == "create"


@given(st.lists(CHANGES, max_size=12))
@example([Change("create", "a", "one"), Change("alter", "a", "two"), Change("fail", "a", reason="old", id=1)])
@example([Change("create", "a", "one"), Change("alter", "a", "one", weight=3.0), Change("activate", "a")])
@example([Change("create", "a", "one"), Change("fail", "a", reason="x", id=1), Change("activate", "a")])
def test_each_query_is_what_its_own_last_changes_say(changes):
    """Against a second reading: of one name at a time, from its last registration on."""
    state = RegistryTexts().after(changes)
    for name in "abc":
        own = [(at, each) for at, each in enumerate(changes, 1) if each.name == name]
        views = [each for _, each in own if each.kind in ("view", "drop_view")]
        assert (name in state.views) == bool(views and views[-1].kind == "view")
        starts = [at for at, (_, each) in enumerate(own) if each.kind in ("create", "drop")]
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
    register, failed = Change("create", "q", "one"), Change("fail", "q", reason="overflow", id=1)
    state = RegistryTexts().after([register, failed, Change("activate", "q")])
    assert state.failed == {1}
    assert state.after([failed, Change("drop", "q")]).failed == {1}
    assert RegistryTexts().after([register, Change("alter", "q", "two"), failed]).failed == set()


def test_a_paused_query_whose_state_is_kept_continues_in_its_incarnation(checkpoint):
    (number,) = (each.id for each in register(checkpoint, "q").queries.values())
    keep = Change("deactivate", "q", reason="quiet", kept_since_us=1_000_000)

    def after(*changes):
        for change in changes:
            record(checkpoint, change)
        registry = registry_now(checkpoint)
        found = registry.queries["q"]
        return found.id == number, found.active, "q" in registry.active, found.reason

    assert after(keep) == (True, False, True, "state kept since 1970-01-01 00:00:01 UTC: quiet")
    assert after(keep, Change("alter", "q", weight=2)) == after()
    assert after(Change("activate", "q")) == (True, True, True, None)
    assert after(keep, Change("fail", "q", reason="broken", id=number)) == (True, False, False, "broken")
    with pytest.raises(OptionError, match=r"its state is not kept.*resume 'q'"):
        record(checkpoint, keep)
    # A plain pause forgets the state, and another text has none.
    register(checkpoint, "r")
    for change, reason in (
        (Change("deactivate", "r"), None),
        (Change("alter", "r", FORMS[1]), "paused; its"),
    ):
        for each in (Change("activate", "r"), replace(keep, name="r"), change):
            found = record(checkpoint, each)
        assert "r" not in found.active
        assert (found.queries["r"].reason or "").startswith(reason or "")
