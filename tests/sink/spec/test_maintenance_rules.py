"""What may go, decided from numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from upstream.delta_format.latest_table import LAYOUT_PROPERTY
from upstream.sink.spec.maintenance_rules import (
    LogFiles,
    MaintenanceRules,
    checkpoint_pays,
    interval_due,
    is_ours,
    oldest_promised,
    parse_interval_s,
    retention_properties,
)

SECOND, HOUR, DAY = 1_000_000, 3_600_000_000, 86_400_000_000


def entry(version: int) -> str:
    return f"{version:020d}.json"


def test_due_by_commits_and_by_the_hour():
    rules = MaintenanceRules(7 * DAY, every=100)
    assert not rules.due(98, -1, 0, 0)
    assert rules.due(99, -1, 0, 0)
    assert not rules.due(150, 99, 0, HOUR - 1)
    assert not rules.due(150, 99, 5, HOUR + 4), "an hour counts from the last checkpoint"
    assert rules.due(199, 99, 0, 0)
    assert rules.due(199, 198, 0, 0), "the checkpoint before may be that of the version before"
    assert rules.due(100, 99, 0, HOUR), "a table that is seldom written to"
    assert not rules.due(99, 99, 0, 9 * HOUR), "nothing has happened since"
    assert rules.due(199, 190, 0, 0), "checkpoints in between put nothing off"
    assert not rules.due(250, 199, 0, 0)
    assert rules.due(1305, 1190, 0, 0), "versions of others, which this process did not see"


def test_a_checkpoint_pays_for_a_long_log():
    assert not checkpoint_pays(524_287, 0)
    assert checkpoint_pays(524_288, 0)
    assert checkpoint_pays(600_000, 30_000)
    assert not checkpoint_pays(600_000, 2_000_000), "to write it costs more than to read the entries"
    assert checkpoint_pays(2_000_000, 2_000_000)


def test_files_of_a_log_by_name():
    version = f"{7:020d}"
    log = LogFiles.of(
        [
            ("_last_checkpoint", 99),
            (entry(9), 90),
            (entry(7), 70),
            (f"{version}.checkpoint.parquet", 71),
            (f".{version}.json.crc", 70),
            (f"{version}.crc", 70),
            (f".{8:020d}.json", 80),
            (f"{8:020d}.checkpoint.0000000001.0000000002.parquet", 80),
            (f"{9:020d}.checkpoint.0000000001.0000000002.parquet", 90),
            (f"{9:020d}.checkpoint.0000000002.0000000002.parquet", 90),
            (f"{10:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet", 91),
            (f"{8:020d}.checkpoint.0000000001.0000000003.parquet", 80),
            (f"{4:020d}.{6:020d}.compacted.json", 60),
            (f".{3:020d}.{5:020d}.compacted.json.crc", 60),
            ("somebody's notes.txt", 1),
        ]
    )
    assert list(log.entries.items()) == [(7, 70), (9, 90)], "ascending"
    assert log.checkpoints == (7, 9, 10), "of 8 a part is missing"
    assert sorted(log.names[7]) == sorted(
        [entry(7), f"{version}.checkpoint.parquet", f".{version}.json.crc", f"{version}.crc"]
    )
    assert log.names[6] == [f"{4:020d}.{6:020d}.compacted.json"]
    assert log.before(8) == [5, 6, 7], "a compacted range goes with its last version"
    assert log.base(8) == log.base(7) == 7
    assert log.base(6) is None


def test_a_version_is_promised_for_as_long_after_another_took_its_place():
    entries = {10: 0, 11: 100, 12: 200, 13: 300}
    rules = MaintenanceRules(150)
    assert oldest_promised(entries, rules, 100) == oldest_promised(entries, rules, 150) == 10
    assert oldest_promised(entries, rules, 249) == 10, "11 took its place 149 ago"
    assert oldest_promised(entries, rules, 250) == 11
    assert oldest_promised(entries, rules, 10_000) == 13, "the table as it is always stays"
    assert oldest_promised(entries, MaintenanceRules(10_000, versions=2), 300) == 12
    assert oldest_promised(entries, MaintenanceRules(10_000, versions=0), 300) == 13, "as somebody may have recorded it"


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=60),
    st.integers(1, 400),
    st.integers(1, 80),
    st.integers(0, 800),
    st.lists(st.integers(0, 59), max_size=8),
)
def test_what_is_promised_stays_readable(steps, retention, versions, later, checkpoints):
    """By a plain computation: every version that was current within the retention, and is among the last so many, is
    read from a checkpoint that stays.
    """
    times: dict[int, int] = {}
    for version, step in enumerate(steps):
        times[version] = times.get(version - 1, 0) + step
    last = len(steps) - 1
    now = times[last] + later
    rules = MaintenanceRules(retention, versions)
    promised = oldest_promised(times, rules, now)
    for version in times:
        replaced_at = times.get(version + 1)
        current_lately = replaced_at is None or replaced_at > now - retention
        if current_lately and version > last - versions:
            assert promised <= version
    assert promised == last or times[promised + 1] > now - retention or promised == last - versions + 1
    log = LogFiles.of(
        [(entry(version), at) for version, at in times.items()]
        + [(f"{version:020d}.checkpoint.parquet", times[version]) for version in set(checkpoints) if version <= last]
    )
    base = log.base(promised)
    if base is None:
        assert not any(version <= promised for version in log.checkpoints)
        return
    assert base <= promised
    assert all(version < base for version in log.before(base))
    assert base not in log.before(base)


def test_properties_follow_the_number_of_versions_in_wide_steps():
    rules = MaintenanceRules(7 * DAY)
    week = 7 * 86_400
    assert retention_properties(rules)["delta.deletedFileRetentionDuration"] == f"interval {week} seconds"
    assert retention_properties(None) == {}
    assert interval_due(week, rules, None) is None
    assert interval_due(None, rules, None) == week, "as others made the table"
    assert interval_due(week, rules, 3 * HOUR) == 6 * 3600, "10,000 versions are three hours"
    recorded, changes = week, 0
    for kept in [*range(3600, 20 * 3600, 600), *range(20 * 3600, 600, -600)]:
        wanted = interval_due(recorded, rules, kept * SECOND)
        if wanted is not None:
            recorded, changes = wanted, changes + 1
        assert kept <= recorded, "VACUUM would take what is promised"
        assert recorded <= max(4 * kept, 3600)
    assert changes < 12
    assert interval_due(recorded, rules, None) == week, "the number binds no more"
    assert parse_interval_s("interval 90 seconds") == 90
    assert parse_interval_s("interval 1 week") is None


def test_an_interval_is_kept_from_what_is_needed_to_four_times_that():
    rules = MaintenanceRules(7 * DAY)
    assert interval_due(7200, rules, 7200 * SECOND) is None
    assert interval_due(7200, rules, 1800 * SECOND) is None
    assert interval_due(7199, rules, 7200 * SECOND) == 14_400
    assert interval_due(7201, rules, 1800 * SECOND) == 3600
    assert interval_due(3600, rules, SECOND) is None, "an hour is little"
    assert interval_due(3601, rules, SECOND) == 3600
    assert str(interval_due(None, rules, 3600 * SECOND + 1)) == "10800", "whole hours, and no float"
    assert interval_due(None, rules, 6 * DAY) == 7 * 86_400, "no more than the rules keep"
    assert interval_due(7 * 86_400, rules, 9 * DAY) is None
    assert interval_due(None, MaintenanceRules(1_500_000), None) == 2
    assert parse_interval_s(None) is None


def test_what_is_not_asked_for_is_what_the_table_records():
    recorded = {"upstream.retentionSeconds": "90", "upstream.retentionVersions": "5"}
    assert MaintenanceRules.of_table(recorded, None, None, 1.5) == MaintenanceRules(90 * SECOND, 5, 1.5)
    assert MaintenanceRules.of_table(recorded, 7, 8, 1.5) == MaintenanceRules(7, 8, 1.5)
    assert MaintenanceRules.of_table({}, None, None, 2.0) == MaintenanceRules()


def test_the_properties_of_a_table():
    rules = MaintenanceRules(90 * SECOND, 5)
    properties = {
        "delta.deletedFileRetentionDuration": "interval 90 seconds",
        "delta.logRetentionDuration": "interval 90 seconds",
        "delta.enableExpiredLogCleanup": "false",
        "upstream.retentionSeconds": "90",
        "upstream.retentionVersions": "5",
    }
    assert retention_properties(rules) == properties
    shorter = dict.fromkeys(list(properties)[:2], "interval 7 seconds")
    assert retention_properties(rules, 7) == properties | shorter
    assert is_ours(properties)
    assert is_ours({LAYOUT_PROPERTY: "{}"})
    assert not is_ours(shorter)


@pytest.mark.parametrize("retention", [0, 1, 999_999, 1_000_000])
def test_the_properties_never_say_less_than_a_second(retention):
    assert interval_due(None, MaintenanceRules(retention), None) == 1
