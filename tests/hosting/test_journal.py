import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from kit.continuous import TRADE
from kit.registries import STREAMS, begun

from upstream.conf.errors import CheckpointError, EnvironmentMissingError
from upstream.hosting.journal import Change, Journal, Settings


def test_versions_follow_each_other(tmp_path):
    journal = Journal(str(tmp_path / "cp"))
    assert journal.version() == 0
    changes = [Change("register", f"q{at}", "text") for at in range(12)]
    for at, change in enumerate(changes, 1):
        assert journal.put(at, change)
        assert journal.version() == at
    again = Journal(str(tmp_path / "cp"))
    assert again.version() == 12
    assert again.read(range(1, 13)) == changes
    assert again.read([7, 2]) == [changes[6], changes[1]]


def test_a_version_that_is_there_stays_and_what_others_write_is_seen(tmp_path):
    one, two = Journal(str(tmp_path / "cp")), Journal(str(tmp_path / "cp"))
    assert one.put(1, Change("drop", "q"))
    assert not two.put(1, Change("drop", "q")), "an equal change is still another's"
    assert two.version() == 1
    one.put(2, Change("drop", "b"))
    one.put(3, Change("drop", "c"))
    assert two.version() == 3


def test_of_many_writers_one_wins_each_version(tmp_path):
    checkpoint = str(tmp_path / "cp")

    def write(name: str) -> list[int]:
        journal, won = Journal(checkpoint), []
        while len(won) < 10:
            version = journal.version() + 1
            if journal.put(version, Change("drop", name)):
                won.append(version)
        return won

    with ThreadPoolExecutor(4) as pool:
        won = list(pool.map(write, "abcd"))
    assert sorted(version for versions in won for version in versions) == list(range(1, 41))
    changes = Journal(checkpoint).read(range(1, 41))
    for name, versions in zip("abcd", won, strict=True):
        assert [at for at, change in enumerate(changes, 1) if change.name == name] == versions


def test_files_of_others_are_no_versions_and_one_that_is_gone_is_an_error(tmp_path):
    journal = Journal(str(tmp_path / "cp"))
    journal.put(1, Change("drop", "q"))
    folder = tmp_path / "cp" / "queries" / "changes"
    for name in (".3.tmp", "00000000000000000009.json.crc", "notes.json"):
        (folder / name).write_text("")
    assert Journal(str(tmp_path / "cp")).version() == 1
    with pytest.raises(CheckpointError, match="no change 2"):
        journal.read([1, 2])


def test_a_disk_that_takes_no_change_is_told_in_words(tmp_path):
    """As root may write anywhere, a file in a folder's place stands for a full or a read-only disk."""
    (tmp_path / "cp").mkdir()
    (tmp_path / "cp" / "queries").write_text("")
    journal = Journal(str(tmp_path / "cp"))
    for write in (lambda: journal.put(1, Change("drop", "q")), lambda: journal.write_settings(Settings("/lake", 8))):
        with pytest.raises(CheckpointError, match=r"queries of .*/cp cannot be changed: .*make room or put the permis"):
            write()


def test_settings_come_back_and_it_is_known_whether_the_job_has_run(tmp_path):
    journal = Journal(str(tmp_path / "cp"))
    assert journal.settings() is None
    checkpoint = begun(tmp_path)
    assert journal.settings() == Settings("/lake", 8, STREAMS)
    assert not journal.started()
    journal.write_settings(Settings("/lake", 4, (TRADE,)))
    assert journal.settings().shards == 4
    (tmp_path / "cp" / "offsets").mkdir()
    (tmp_path / "cp" / "offsets" / ".0.crc").write_text("")
    assert not journal.started()
    (tmp_path / "cp" / "offsets" / "0").write_text("v1")
    assert journal.started()
    shutil.rmtree(checkpoint)
    assert Journal(checkpoint).version() == 0


def test_what_a_registry_in_a_store_lacks_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(EnvironmentMissingError, match="s3://without-extra/cp"):
        Journal("s3://without-extra/cp").put(1, Change("drop", "slow"))
