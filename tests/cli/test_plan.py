"""`upstream plan` as a person runs it."""

import re
import shlex
import subprocess
import time

import pytest
from kit.places import ROOT
from kit.programs import COMMAND, run_command

README = ROOT / "README.md"


def plan(*arguments):
    return run_command("plan", *arguments)


def test_a_table_with_a_line_per_policy():
    done = plan("--rate", "50", "--keys", "10", "--cost", "0.1s", "--for", "20s", "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert "load 5.00" in done.stdout
    for policy in ("append (grows)", "shed", "fifo", "in-place", "linecutting"):
        assert sum(line.startswith(policy) for line in done.stdout.splitlines()) == 1


def test_a_target_decides_the_exit_code():
    question = (
        "--rate",
        "50",
        "--keys",
        "10",
        "--cost",
        "0.1s",
        "--for",
        "20s",
        "--seeds",
        "1",
        "--policy",
        "in-place",
    )
    met = plan(*question, "--target", "p99 < 3 s")
    assert met.returncode == 0, met.stderr
    assert "yes" in met.stdout
    missed = plan(*question, "--target", "p99 < 100 ms")
    assert missed.returncode == 1
    assert "no" in missed.stdout


def test_batches_with_a_fixed_cost():
    done = plan("--rate", "1000", "--keys", "100", "--cost", "0.1ms", "--fixed", "0.5s", "--for", "20s", "--seeds", "1")
    assert done.returncode == 0, done.stderr
    assert "grows" not in done.stdout


def test_nonsense_is_refused_in_a_sentence():
    for arguments, message in (
        (("--cost", "soon"), "--cost"),
        (("--cost", "1ms", "--policy", "lifo"), "lifo"),
        (("--cost", "0s"), "at least 1"),
        (("--cost", "1ms", "--target", "p98 < 1 s"), "p98"),
    ):
        done = plan("--rate", "50", "--keys", "10", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr


COMMANDS = re.findall(r"`upstream plan ([^`]*)`", README.read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_readmes_own_question_has_a_first_answer_soon_and_then_a_better_one(arguments):
    """Within 3 s of an idle machine's time; CI's may be busy."""
    began = time.monotonic()
    with subprocess.Popen([*COMMAND, "plan", *shlex.split(arguments)], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = []
        for line in running.stdout:
            first.append(line)
            if line.startswith("linecutting"):
                break
        took = time.monotonic() - began
        rest = running.communicate(timeout=300)[0]
    assert took < 30
    assert running.returncode == 0
    assert "First answer, 1 run of" in "".join(first)
    assert "Better answer, 3 runs of" in rest
    for policy in ("append", "shed", "fifo", "in-place", "linecutting"):
        for text in ("".join(first), rest):
            assert sum(line.startswith(policy) for line in text.splitlines()) == 1


def test_readme_has_such_a_question():
    assert COMMANDS


def test_quick_gives_the_first_answer_only():
    done = plan("--rate", "10000", "--keys", "20000", "--cost", "0.5ms", "--quick", "--policy", "in-place")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("in-place") == 1
    assert "Better" not in done.stdout
