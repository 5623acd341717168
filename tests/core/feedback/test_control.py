"""Settings change by numbered files, each once; a planner takes them into its offsets, where a batch finds them."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.journal import through_json

from upstream.conf.errors import CheckpointError, OptionError
from upstream.core.feedback import control
from upstream.core.feedback.control import (
    FIRST_BUDGET,
    ControlChange,
    ControlConflictError,
    ControlLog,
    ControlReader,
    QueueBudget,
    newest_record,
    taken_in,
)
from upstream.storage.folder import TableFolder

BUDGET = ControlChange("queue/0", "budget", 500, 1, "one")


def log_at(tmp_path):
    return ControlLog(TableFolder(str(tmp_path)))


def test_changes_follow_each_other_and_the_last_of_each_attribute_is_in_force(tmp_path):
    log = log_at(tmp_path)
    log.put(0, BUDGET)
    log.put(1, ControlChange("sink", "target", " p99 < 10 s ", 2))
    log.put(2, ControlChange("queue/0", "budget", "Auto", 3))
    assert log_at(tmp_path).settings("queue/0", 2) == {"budget": 500}
    assert log_at(tmp_path).settings("queue/0", 3) == {"budget": "auto"}
    assert log.settings("queue/1", 3) == {}
    log.put(3, ControlChange("queue/0", "budget", None, 4, "two"))
    assert log.settings("queue/0", 4) == {}, "as the query was started"
    assert [each.value for each in log_at(tmp_path).changes()] == [500, "p99 < 10 s", "auto", None]


def test_of_two_changes_at_once_the_second_is_refused_and_says_what_the_first_was(tmp_path):
    one, two = log_at(tmp_path), log_at(tmp_path)
    one.put(0, BUDGET)
    with pytest.raises(ControlConflictError, match=r"version 0 .* there is version 1, by which queue/0.budget is 500"):
        two.put(0, ControlChange("queue/0", "budget", 7, 2))
    with pytest.raises(ControlConflictError, match="version 9 of the controls was given"):
        two.put(9, ControlChange("queue/0", "budget", 7, 2))
    two.put(1, ControlChange("queue/0", "budget", 7, 2))

    def write(name):
        mine, lost = log_at(tmp_path), 0
        for _ in range(5):
            while True:
                try:
                    mine.put(mine.version(), ControlChange("queue/0", "budget", 9, 3, name))
                    break
                except ControlConflictError:
                    lost += 1
        return lost

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, "abcd"))
    assert sorted(each.by for each in log_at(tmp_path).changes()[2:]) == sorted("abcd" * 5)


@pytest.mark.parametrize(
    ("entity", "attribute", "value"),
    [
        ("queue/0", "budget", 0),
        ("queue/0", "budget", True),
        ("queue/0", "budget", 2.5),
        ("queue/0", "budget", "-3"),
        ("queue/0", "budget", "soon"),
        ("queue/0", "policy", "fifo"),
        ("sink", "target", "soon"),
        ("sink", "maintenance", "later"),
        ("source/a", "maxBytesPerTrigger", "many"),
        ("source/a", "idleAfter", 3),
        ("window/0", "size", 1),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_nothing_is_written(tmp_path, entity, attribute, value):
    with pytest.raises(OptionError):
        log_at(tmp_path).put(0, ControlChange(entity, attribute, value, 1))
    assert log_at(tmp_path).version() == 0


@pytest.mark.parametrize(
    ("entity", "attribute", "value", "kept"),
    [
        ("queue/0", "budget", "20000", 20000),
        ("queue/0", "budget", "2 seconds", "2 seconds"),
        ("source/a", "maxRowsPerTrigger", "NONE", "none"),
        ("source/a", "maxBytesPerTrigger", "32 MB", 32 << 20),
        ("sink", "target", "none", "none"),
    ],
)
def test_a_value_is_kept_in_one_form(tmp_path, entity, attribute, value, kept):
    log_at(tmp_path).put(0, ControlChange(entity, attribute, value, 1))
    assert log_at(tmp_path).changes()[0].value == kept


def test_a_damaged_file_is_an_error_in_words(tmp_path):
    log_at(tmp_path).put(0, BUDGET)
    (file,) = (tmp_path / "upstream-control").glob("*.json")
    file.write_text('{"entity": "queue/0"}')
    with pytest.raises(CheckpointError, match="upstream set"):
        log_at(tmp_path).changes()


def journal(tmp_path, batch):
    (tmp_path / "offsets").mkdir(exist_ok=True)
    (tmp_path / "offsets" / str(batch)).write_text("v1")


def test_an_offset_has_what_was_written_before_it_was_planned_and_since_which_batch(tmp_path):
    reader, log = ControlReader(TableFolder(str(tmp_path))), log_at(tmp_path)
    assert reader.record("queue/0", None, 10) is None
    log.put(0, BUDGET)
    log.put(1, ControlChange("sink", "maintenance", "now", 2))
    first = through_json(reader.record("queue/0", None, 10))
    assert first == {
        "version": 2, "settings": {"budget": 500}, "sink": {"maintenance": 2}, "taken": [[2, 0, 10]],
    }  # fmt: skip
    journal(tmp_path, 0)
    assert reader.record("queue/0", first, 20) is first
    log.put(2, ControlChange("queue/0", "budget", None, 3))
    journal(tmp_path, 7)
    second = ControlReader(TableFolder(str(tmp_path))).record("queue/0", first, 30)
    assert (second["version"], second["settings"]) == (3, {})
    assert [taken_in(second["taken"], version) for version in (1, 2, 3, 4)] == [(0, 10), (0, 10), (8, 30), None]
    assert newest_record([{"tick": 1}, {"control": first}, "text", {"control": second}]) == second
    assert newest_record([{"tick": 1}]) is None


def test_only_the_last_changes_stay_in_an_offset_and_nothing_wrong_is_said_of_others(tmp_path, monkeypatch):
    monkeypatch.setattr(control, "_REMEMBERED", 3)
    folder, taken = TableFolder(str(tmp_path)), []
    for version in range(1, 6):
        taken = control.taken_with(taken, version, folder, version * 10)
        journal(tmp_path, version)
    assert [taken_in(taken, version) for version in range(1, 6)] == [None, None, None, (4, 40), (5, 50)]


@pytest.mark.parametrize(
    ("values", "rule", "text"),
    [
        ((None, "none", " None "), QueueBudget(None), "none"),
        (("auto", "AUTO"), QueueBudget(FIRST_BUDGET, auto=True), "auto"),
        ((10_000, "10000", "+10000"), QueueBudget(10_000), "10000"),
        (("2 seconds", "2000 ms"), QueueBudget(FIRST_BUDGET, True, 2.0), "2.0 s"),
    ],
)
def test_a_budget_has_one_form_for_programs_sql_and_controls(values, rule, text):
    for value in values:
        assert QueueBudget.parse(value) == rule
    assert QueueBudget.parse(rule.text) == rule
    assert rule.text == text
    assert rule.instead_of(QueueBudget(7)) == rule._replace(rows=7 if rule.auto else rule.rows, planned=False)


@pytest.mark.parametrize("budget", [0, -1, 2.5, "many", True, "0", "-1", "2.5", ""])
def test_a_budget_that_would_process_nothing_is_refused(budget):
    with pytest.raises(OptionError, match="at least 1"):
        QueueBudget.parse(budget)
