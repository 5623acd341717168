"""A partition's log that loses its tail on a real broker, and gets another one before anybody looks."""

import shutil

import pytest
from kit.journal import through_json

from upstream.conf.errors import FeedChangedError
from upstream.datasource.connectors.contract import Limit


def numbered(numbers):
    return [b'{"n": %d}' % number for number in numbers]


def numbers(rows):
    return [row["n"] for row in rows]


@pytest.fixture
def cut(broker, tmp_path):
    """Does something, after which a topic's log is what it was before: what a leader without the tail brings."""

    def cut_off(topic, meanwhile):
        log, kept = broker.log_of(topic), tmp_path / "kept"
        # Indexes are made again; those of a broker that runs are longer than what they hold.
        shutil.copytree(log, kept, ignore=shutil.ignore_patterns("*index"))
        meanwhile()
        broker.stop()
        shutil.rmtree(log)
        shutil.copytree(kept, log)
        broker.start()

    return cut_off


def again(reader, make):
    """Another process, from the journal."""
    later = make()
    later.position = through_json(reader.position)
    return later


def test_a_tail_that_was_replaced_is_an_error_or_read_and_counted(topic, source, sender, cut):
    name = topic()
    strict, tolerant = (lambda lost=lost: source(name, "n BIGINT", failOnDataLoss=lost) for lost in ("true", "false"))
    running = tolerant()
    sender.send(name, *numbered(range(5)))

    def meanwhile():
        sender.send(name, *numbered(range(5, 10)))
        assert numbers(running.rows(running.step(Limit(rows=8)))) == list(range(8))

    cut(name, meanwhile)
    sender.send(name, *numbered(range(100, 110)))  # offsets 5 to 14: beyond the 8 that were read
    stopped, restarted = again(running, strict), again(running, tolerant)
    with pytest.raises(FeedChangedError, match=r"offset 5, .* offset 8"):
        stopped.step()
    for reader in (running, restarted):
        taken = reader.step()
        assert [(part.place["from"], part.place["to"]) for part in taken.ranges] == [(5, 5)]
        assert taken.position["lost"] == 3
        assert numbers(reader.rows(reader.step())) == list(range(100, 110))
        assert reader.step().ranges == []
        assert reader.position["lost"] == 3


def test_a_range_that_was_recorded_before_its_log_was_cut_gives_nothing_of_the_other_tail(topic, source, sender, cut):
    name = topic()
    strict, tolerant, frozen = (source(name, "n BIGINT", failOnDataLoss=lost) for lost in ("true", "false", "false"))
    sender.send(name, *numbered(range(5)))
    taken = []

    def meanwhile():
        sender.send(name, *numbered(range(5, 10)))
        taken.extend([strict.step(), tolerant.step()])
        frozen.connector.freeze(0)

    cut(name, meanwhile)
    sender.send(name, *numbered(range(100, 110)))
    with pytest.raises(FeedChangedError, match="offset 5 at the latest"):
        strict.rows(taken[0])
    assert numbers(tolerant.rows(taken[1])) == list(range(5))
    assert numbers(frozen.rows(frozen.step(Limit(rows=3)))) == [0, 1, 2]
    assert numbers(frozen.rows(frozen.step())) == [3, 4]
    for reader in (tolerant, again(frozen, lambda: source(name, "n BIGINT", failOnDataLoss="false"))):
        assert reader.rows(reader.step()) == []
        assert reader.position["lost"] == 5
        assert numbers(reader.rows(reader.step())) == list(range(100, 110))
