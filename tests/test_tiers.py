"""The tiers leave no test out: eight slices are the rest, and a change brings the tests that mirror it."""

import subprocess

from hypothesis import given
from hypothesis import strategies as st
from kit import tiers
from kit.places import ROOT

TESTS = {
    "tests/sink/merge/test_engines.py": "from kit.sink import Sink\nfrom .rows import row\n",
    "tests/sink/merge/test_engines_on_spark.py": "",
    "tests/sink/merge/test_engines_of_others.py": "",
    "tests/sink/merge/test_conflicts.py": "",
    "tests/sink/merge/rows.py": "",
    "tests/sink/test_merge_on_spark.py": "from kit import tables, waiting\n",
    "tests/sink/test_merger.py": "",
    "tests/sink/table/test_engines.py": "",
}


@given(st.dictionaries(st.text(min_size=1), st.floats(0, 100), max_size=40))
def test_each_file_is_in_one_slice(seconds):
    slices = [tiers.slice_of(seconds, seconds, number) for number in range(3, 3 + tiers.SLICES)]
    assert sorted(file for each in slices for file in each) == sorted(seconds)
    loads = [sum(seconds[file] for file in each) for each in slices]
    assert max(loads) - min(loads) <= max(seconds.values(), default=0) + 1e-9


def test_a_module_has_tests_of_its_name_then_of_its_folder_then_of_its_subject():
    assert tiers.mirrors(["sink/merge/engines.py"], TESTS) == [
        "tests/sink/merge/test_engines.py",
        "tests/sink/merge/test_engines_of_others.py",
        "tests/sink/merge/test_engines_on_spark.py",
        "tests/sink/merge/test_conflicts.py",
        "tests/sink/test_merge_on_spark.py",
    ]


def test_a_helper_has_the_tests_that_import_it():
    assert tiers.mirrors(["tests/sink/merge/rows.py"], TESTS) == ["tests/sink/merge/test_engines.py"]
    assert tiers.mirrors(["tests/kit/sink.py"], TESTS) == ["tests/sink/merge/test_engines.py"]
    assert tiers.mirrors(["tests/kit/tables.py"], TESTS) == ["tests/sink/test_merge_on_spark.py"]


def test_a_test_that_changed_is_its_own_mirror_and_one_that_is_gone_has_none():
    assert tiers.mirrors(["tests/sink/test_merger.py", "tests/sink/test_gone.py"], TESTS) == [
        "tests/sink/test_merger.py"
    ]


def test_what_exceeds_the_budget_is_left_to_its_slice():
    seconds = {"long": tiers.TOUCHED_S + 1, "one": tiers.TOUCHED_S / 2, "two": tiers.TOUCHED_S / 2, "three": 1.0}
    assert tiers.within_budget(seconds, seconds) == (["one", "two"], ["long", "three"])


def test_a_change_starts_after_the_last_raise_and_may_end_with_one(tmp_path):
    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"]
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def commit(file: str, text: str) -> None:
        (tmp_path / file).write_text(text)
        git("add", file)
        git("commit", "-m", "change")

    assert tiers.changes(tmp_path) == ("", [])
    (tmp_path / "tests").mkdir()
    git("init")
    commit("old.py", "1")
    commit("tests/slice", "1")
    assert tiers.changes(tmp_path) == ("", []), "nothing came before"
    commit("one.py", "1")
    commit("two.py", "1")
    (tmp_path / "three.py").write_text("1")
    assert tiers.changes(tmp_path)[1] == ["one.py", "three.py", "two.py"]
    commit("tests/slice", "2")
    assert tiers.changes(tmp_path)[1] == ["one.py", "three.py", "two.py"]
    commit("four.py", "1")
    assert tiers.changes(tmp_path)[1] == ["four.py", "three.py"]


def test_each_test_of_the_core_is_there():
    for each in tiers.read_core(ROOT):
        file, _, name = tiers.name_of(each).partition("::")
        assert f"def {name}(" in (ROOT / file).read_text(), each
