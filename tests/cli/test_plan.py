import re
import shlex

import pytest
from kit.places import ROOT

from .in_process import command, done, refused

QUESTION = ("plan", "--rate", "50", "--keys", "10", "--cost", "0.1s", "--for", "20s")
POLICIES = ("append", "shed", "fifo", "in-place", "linecutting")


def lines_of(printed: str) -> list[str]:
    """The policy of each line of a table."""
    return [line.split()[0] for line in printed.splitlines() if line.startswith(POLICIES)]


def test_a_table_with_a_line_per_policy():
    printed = done(*QUESTION, "--seeds", "2")
    assert "load 5.00" in printed
    assert lines_of(printed) == [*POLICIES]
    assert "append (grows)" in printed
    question = ("--rate", "1000", "--keys", "100", "--cost", "0.1ms", "--fixed", "0.5s", "--for", "20s", "--seeds", "1")
    assert "grows" not in done("plan", *question)


def test_a_target_decides_the_exit_code():
    question = (*QUESTION, "--seeds", "1", "--policy", "in-place")
    assert "yes" in done(*question, "--target", "p99 < 3 s")
    missed = command(*question, "--target", "p99 < 100 ms")
    assert (missed.returncode, "no" in missed.stdout) == (1, True)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (("--cost", "soon"), "--cost"),
        (("--cost", "1ms", "--policy", "lifo"), "lifo"),
        (("--cost", "0s"), "at least 1"),
        (("--cost", "1ms", "--target", "p98 < 1 s"), "p98"),
    ],
)
def test_nonsense_is_refused_in_a_sentence(more, part):
    assert part in refused("plan", "--rate", "50", "--keys", "10", *more)


def test_a_long_question_has_a_rough_answer_first_and_then_a_better_one():
    printed = done("plan", "--rate", "500", "--keys", "100", "--cost", "10ms", "--for", "4s", "--seeds", "2")
    first, better = printed.split("Better answer, 2 runs of")
    assert "First answer, 1 run of" in first
    assert lines_of(first) == lines_of(better) == [*POLICIES]


def test_the_readmes_question_has_a_quick_answer_only_if_that_is_asked_for():
    (question,) = re.findall(r"`upstream plan ([^`]*)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    printed = done("plan", *shlex.split(question), "--quick", "--policy", "in-place")
    assert lines_of(printed) == ["in-place"]
    assert "Better" not in printed
