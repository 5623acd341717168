"""What is read of a real broker: formats, tombstones, transactions, compaction, retention, topics that change."""

import datetime as dt
import json
import shutil
import socket
import sys
import threading
import time

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from kit.journal import through_json
from kit.waiting import wait_for

from upstream.conf.errors import EnvironmentMissingError, FeedChangedError, OptionError, SchemaError, UpstreamError
from upstream.datasource.connectors.contract import Limit
from upstream.datasource.connectors.kafka import client
from upstream.datasource.connectors.kafka import connector as consuming
from upstream.datasource.connectors.kafka.client import Cluster
from upstream.datasource.connectors.kafka.options import KafkaOptions

from .messages import Sender


def values(rows, name="n"):
    return [row[name] for row in rows]


def numbered(start, stop):
    return [b'{"n": %d}' % number for number in range(start, stop)]


@pytest.fixture
def both(source):
    """Two readers of a topic: one for which a loss is an error, and one that counts it; each goes on where one was."""

    def make(name, *before):
        made = [source(name, "n BIGINT", failOnDataLoss=each) for each in ("true", "false")]
        for reader, earlier in zip(made, before, strict=False):
            reader.position = earlier.position
        return made

    return make


def test_json_columns_are_inferred_and_each_partition_is_a_feed(topic, source, sender):
    name = topic(3)
    sender.send(name, b'{"k": "a", "n": 1}', b'{"k": "b", "n": 2}', partition=0)
    sender.send(name, b'{"k": "c", "n": 3}', partition=2)
    reader = source(name)
    assert reader.connector.schema().names == ["k", "n"]
    taken = reader.step()
    assert reader.connector.feeds(taken.position) == [f"{name}/{each}" for each in range(3)]
    assert [(part.feed, part.span) for part in taken.ranges] == [(f"{name}/0", 2), (f"{name}/2", 1)]
    assert values(reader.rows(taken)) == [1, 2, 3]
    assert reader.rows(taken) == reader.rows(taken)
    assert reader.step().ranges == []


def test_values_that_are_no_object_go_aside_and_the_others_keep_their_numbers(topic, source, sender):
    name = topic()
    bad = [b"", b"  ", b"[1]", b'{"n": 1}{"n": 2}', b'{"n":', b"1}", b"\xff\xfe", b'{"n": "text"}', b"null"]
    good = [b'{"n": 10}', b' {\n "n":\r\n 11}\n', b'{"n": 12, "more": {}}']
    sender.send(name, good[0], *bad, *good[1:])
    reader = source(name, "n BIGINT")
    rows = reader.rows()
    assert [(row["n"], row["index"]) for row in rows] == [(10, 0), (11, 10), (12, 11)]
    assert sorted(place for place, _ in reader.reported.reasons) == sorted(
        f"{name}/0, offset {at}" for at in range(1, 1 + len(bad))
    )
    assert all(reason for _, reason in reader.reported.reasons)


def test_one_broker_that_answers_is_enough(broker, monkeypatch):
    dead = "127.0.0.1:1,no.such.host.invalid:1"
    KafkaOptions(servers=f"{dead},{broker.address}", subscribe=("t",)).check_answers()
    absent = KafkaOptions(servers=dead, subscribe=("t",))
    with pytest.raises(UpstreamError, match=f"no Kafka broker answers at {dead}: "):
        absent.check_answers()
    with pytest.raises(UpstreamError, match=r"it hangs up; check that kafka.security.protocol"):
        KafkaOptions(
            servers=broker.address, subscribe=("t",), passed_on={"security.protocol": "SASL_SSL"}
        ).check_answers()
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(EnvironmentMissingError, match=r"needs the extra `kafka`.*pip install .confluent-kafka"):
        absent.check_answers()


@pytest.mark.parametrize(
    ("answer", "protocol", "why"),
    [
        (None, "plaintext", "it accepts connections, but does not answer a Kafka request"),
        (None, "ssl", "it accepts connections, but does not answer a Kafka request"),
        (b"", "plaintext", "it hangs up; check that kafka.security.protocol is the one"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "plaintext", "it speaks HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "ssl", "it does not speak TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "plaintext", "it demands TLS; set kafka.security.protocol to SSL"),
        (b"220 mail ESMTP\r\n", "plaintext", "it answers a Kafka request with b'220 mail"),
    ],
)
def test_a_port_that_is_no_broker_says_why_within_seconds(monkeypatch, answer, protocol, why):
    monkeypatch.setattr("upstream.datasource.connectors.kafka.options._ANSWERS_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"

        def serve() -> None:
            with listener.accept()[0] as peer:
                peer.recv(1000)
                if answer is not None:
                    peer.sendall(answer)
                else:
                    done.wait()

        done = threading.Event()
        server = threading.Thread(target=serve)
        server.start()
        options = KafkaOptions(servers=address, subscribe=("t",), passed_on={"security.protocol": protocol})
        with pytest.raises(UpstreamError, match=f"no Kafka broker answers at {address}: {why}"):
            options.check_answers()
        done.set()
        server.join()


def test_csv_by_the_order_of_the_schema(topic, source, sender):
    name = topic()
    sender.send(name, b"1,a", b"2", b"x,b", b'3,"c,d"\n', b"", b"4,e\n5,f")
    reader = source(name, "n BIGINT, t STRING", valueFormat="csv")
    assert [(row["n"], row["t"], row["index"]) for row in reader.rows()] == [(1, "a", 0), (3, "c,d", 3)]
    assert len(reader.reported) == 4
    with pytest.raises(SchemaError, match="`schema`"):
        source(name, valueFormat="csv").connector.schema()


def test_raw_is_as_sparks_own_source(topic, source, sender):
    name = topic(2)
    sender.send(name, b"\x00\xff", None, partition=1, key=b"k", timestamp=1234, headers=[("h", b"1"), ("h", b"2")])
    reader = source(name, valueFormat="raw", includeHeaders="true")
    names = "key value topic partition offset timestamp timestampType headers"
    assert reader.connector.schema().names == names.split()
    first, second = reader.rows()
    assert first["value"] == b"\x00\xff"
    assert (first["key"], first["topic"], first["partition"], first["offset"]) == (b"k", name, 1, 0)
    assert first["timestamp"] == dt.datetime(1970, 1, 1, 0, 0, 1, 234000, dt.timezone.utc)
    assert (first["timestampType"], first["headers"]) == (0, [{"key": "h", "value": b"1"}, {"key": "h", "value": b"2"}])
    assert (second["value"], second["offset"], second["gone"]) == (None, 1, True)


def test_key_and_time_of_the_message_are_columns_where_they_are_named(topic, source, sender):
    name = topic()
    sender.send(name, b'{"n": 1}', key=b"one", timestamp=5000)
    reader = source(name, key="_key", eventTime="_timestamp")
    assert reader.connector.schema().names == ["n", "_key", "_timestamp"]
    (row,) = reader.rows()
    assert (row["n"], row["_key"]) == (1, "one")
    assert row["_timestamp"] == dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("keys", "options", "expected"),
    [
        ([b"7", b"x"], {"key": "k"}, [7]),
        ([b'{"k": 7, "j": "a"}', b'{"k": 8, "j": "b", "c": 1}', b"7", None],
         {"key": "k,j", "keyFormat": "json"}, [7, 8]),
        ([b"7"], {"key": "k,j"}, []),
    ],
)  # fmt: skip
def test_a_tombstone_has_its_key_from_the_message_and_its_place_among_the_rows(
    topic, source, sender, keys, options, expected
):
    name = topic()
    sender.send(name, b'{"k": 1, "j": "z", "ms": 10, "n": 1}', key=b"1")
    for key in keys:
        sender.send(name, None, key=key, timestamp=99)
    sender.send(name, b'{"k": 2, "j": "z", "ms": 20, "n": 2}', key=b"2")
    reader = source(name, "k BIGINT, j STRING, ms BIGINT, n BIGINT", eventTime="ms", timeFormat="epoch_ms", **options)
    rows = reader.rows()
    assert values(rows, "k") == [1, *expected, 2]
    assert [row.get("gone", False) for row in rows] == [False, *[True for _ in expected], False]
    assert values(rows, "index") == [0, *range(1, 1 + len(expected)), 1 + len(keys)]
    assert all((row["n"], row["ms"]) == (None, None) for row in rows if "gone" in row)
    assert len(reader.reported) == len(keys) - len(expected)


def test_aborted_and_open_transactions_are_not_read_unless_asked_for(broker, topic, source, sender):
    name = topic()
    sender.send(name, b'{"n": 1}')
    writing = Sender(broker.address, **{"transactional.id": name})
    writing.producer.init_transactions(30)
    for value, end in ((b'{"n": 2}', "abort"), (b'{"n": 3}', "commit"), (b'{"n": 4}', "open")):
        writing.producer.begin_transaction()
        writing.send(name, value)
        if end == "abort":
            writing.producer.abort_transaction(30)
        elif end == "commit":
            writing.producer.commit_transaction(30)
    sender.send(name, b'{"n": 5}')
    reader = source(name, "n BIGINT")
    taken = reader.step()
    # Up to the open transaction: it may yet be aborted. The marks that end the others take offsets of their own.
    assert [part.place["to"] for part in taken.ranges] == [5]
    assert [(row["n"], row["index"]) for row in reader.rows(taken)] == [(1, 0), (3, 3)]
    everything = source(name, "n BIGINT", kafka__isolation__level="read_uncommitted")
    assert values(everything.rows()) == [1, 2, 3, 4, 5]
    writing.producer.commit_transaction(30)
    later: list[int] = []
    # The mark is written a little after the commit is acknowledged.
    wait_for(lambda: later.extend(values(reader.rows())) or later == [4, 5])
    # A range of nothing but marks has an end, too.
    assert reader.rows() == []


def test_messages_past_retention_are_an_error_or_counted(broker, topic, sender, both, caplog):
    name = topic()
    sender.send(name, *numbered(0, 10))
    reader, tolerant = both(name)
    for each in (reader, tolerant):
        assert values(each.rows(each.step(Limit(rows=3)))) == [0, 1, 2]
    waiting = tolerant.connector.advance(tolerant.position, 1, Limit())
    broker.admin.delete_records([TopicPartition(name, 0, 7)])[TopicPartition(name, 0, 7)].result(30)
    with pytest.raises(FeedChangedError, match="begins at offset 7"):
        reader.step()
    # A task whose range had been recorded before.
    with pytest.raises(FeedChangedError, match="offset 3"):
        reader.rows(waiting)
    assert values(tolerant.rows(waiting)) == [7, 8, 9]
    taken = tolerant.step()
    assert values(tolerant.rows(taken)) == [7, 8, 9]
    assert taken.position["lost"] == 4
    assert tolerant.connector.backlog(taken.position, 1) == {"rows": 0, "lost": 4}
    assert "begins at offset 7" in caplog.text


@pytest.mark.parametrize("again", [True, False], ids=["made again, and longer", "gone"])
def test_a_topic_that_is_gone_or_made_again(broker, topic, source, sender, both, again):
    name = topic()
    sender.send(name, *numbered(1, 2))
    before = both(name)
    for each in before:
        assert values(each.rows()) == [1]
    broker.delete(name)
    if again:
        broker.create(name)
        sender.send(name, *numbered(2, 5))
    strict, tolerant = both(name, *before)
    with pytest.raises(FeedChangedError, match="made again" if again else "not there"):
        strict.step()
    if again:
        assert values(tolerant.rows()) == [2, 3, 4]
    else:
        assert tolerant.step().ended == {f"{name}/0"}
        with pytest.raises(FeedChangedError, match=f"no topic '{name}'"):
            source(name, "n BIGINT").step()
        with pytest.raises(FeedChangedError, match=f"no topic '{name}'"):
            source(name).connector.schema()


def test_which_partitions_and_from_where_to_where(topic, source, sender):
    one, other = topic(2), topic(1)
    for name, partition in ((one, 0), (one, 1), (other, 0)):
        sender.send(name, *numbered(0, 5), partition=partition)
    pattern = source("", "n BIGINT", subscribePattern=f"({one}|{other})")
    assert len(pattern.rows()) == 15
    assigned = source("", "n BIGINT", assign=json.dumps({one: [1]}))
    assert {row["feed"] for row in assigned.rows()} == {f"{one}/1"}
    starts, ends = json.dumps({one: {"0": 3, "1": -1}}), json.dumps({one: {"0": 4}, other: {"0": 2}})
    reader = source(f"{one},{other}", "n BIGINT", startingOffsets=starts, endingOffsets=ends)
    taken = reader.step()
    found = [(row["feed"], row["n"]) for row in reader.rows(taken)]
    assert found == [(f"{one}/0", 3), (f"{other}/0", 0), (f"{other}/0", 1)]
    assert taken.ended == {f"{one}/0", f"{other}/0"}
    with pytest.raises(OptionError, match="holds 0 to 5"):
        source(one, "n BIGINT", startingOffsets=json.dumps({one: {"0": 50}})).step()


def test_frozen_it_sees_nothing_that_comes_later(topic, source, sender):
    name = topic()
    sender.send(name, *numbered(1, 3))
    reader = source(name, "n BIGINT", maxOffsetsPerTrigger="1")
    reader.connector.freeze(0)
    sender.send(name, *numbered(3, 4))
    limit = reader.connector.limit(Limit())
    assert [values(reader.rows(reader.step(limit))) for _ in range(3)] == [[1], [2], []]


def test_arrival_is_when_a_message_was_first_seen_however_long_it_waited(topic, source, sender):
    name = topic()
    reader = source(name, "n BIGINT")
    sender.send(name, *numbered(1, 3))
    reader.step(Limit(rows=1), now_us=100)
    sender.send(name, *numbered(3, 4))
    restarted = source(name, "n BIGINT")
    restarted.position = through_json(reader.position)
    (part,) = restarted.step(now_us=200).ranges
    (chunk,) = restarted.connector.read(part, None, restarted.reported)
    assert chunk.arrival_us.tolist() == [100, 200]


def test_secrets_are_in_no_error_and_no_offset(topic, source, sender):
    name = topic()
    sender.send(name, b'{"n": 1}')
    secret = "hunter2-of-the-test"
    with pytest.raises(OptionError) as refused:
        source(name, "n BIGINT", kafka__sasl__jaas__config=secret).step()
    with pytest.raises(OptionError) as wrong:
        source(name, "n BIGINT", kafka__ssl__key__password=secret, kafka__security__protocol="nonsense").step()
    reader = source(name, "n BIGINT", kafka__sasl__password=secret)
    taken = reader.step()
    assert len(reader.rows(taken)) == 1
    shown = (refused.value, wrong.value, json.dumps(taken.position), repr(taken), repr(vars(reader.connector)))
    assert not any(secret in str(each) for each in shown)


def test_options_that_do_not_go_together(source):
    for option, value in (
        ("subscribePattern", "a.*"),
        ("kafka__auto__offset__reset", "earliest"),
        ("valueFormat", "avro"),
        ("valueFormat", "protobuf"),
        ("maxBytesPerTrigger", "1 MB"),
        ("startingOffsets", '{"a": {"0": -3}}'),
        ("endingOffsets", "earliest"),
    ):
        with pytest.raises(OptionError):
            source("a", **{option: value})
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        source("a", kafka__bootstrap__servers=" ")


def test_another_consumer_takes_its_place_and_goes_on_where_it_was(topic, source, sender, monkeypatch):
    """It has waited for work while brokers restarted, and then gets nothing."""
    made = []

    class Deaf(confluent_kafka.Consumer):
        """The real client. The first two give two messages, and then nothing."""

        def __init__(self, settings):
            super().__init__(settings)
            self.given = 0
            made.append(self)

        def consume(self, num_messages=1, timeout=-1):
            if self in made[:2]:
                num_messages = min(num_messages, 2 - self.given)
            got = super().consume(num_messages, timeout) if num_messages else []
            self.given += len(got)
            return got

    monkeypatch.setattr(confluent_kafka, "Consumer", Deaf)
    monkeypatch.setattr(consuming, "_SILENT_S", 0.5)
    monkeypatch.setattr(client, "_idle", {})
    name = topic()
    sender.send(name, *numbered(0, 10))
    reader = source(name, "n BIGINT")
    assert values(reader.rows(reader.step(Limit(rows=6)))) == list(range(6))
    assert [each.given for each in made[:2]] == [2, 2]
    assert values(reader.rows(reader.step())) == list(range(6, 10))


def test_a_query_that_starts_waits_a_moment_for_its_first_broker(monkeypatch):
    monkeypatch.setattr(client, "_PATIENCE_FIRST_S", 0.5)
    began_s = time.monotonic()
    with pytest.raises(UpstreamError, match=r"no Kafka broker answers at 127.0.0.1:1: "):
        Cluster(KafkaOptions(servers="127.0.0.1:1", subscribe=("t",))).topics()
    assert time.monotonic() - began_s > 0.5


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
    sender.send(name, *numbered(0, 5))

    def meanwhile():
        sender.send(name, *numbered(5, 10))
        assert values(running.rows(running.step(Limit(rows=8)))) == list(range(8))

    cut(name, meanwhile)
    sender.send(name, *numbered(100, 110))  # offsets 5 to 14: beyond the 8 that were read
    stopped, restarted = again(running, strict), again(running, tolerant)
    with pytest.raises(FeedChangedError, match=r"offset 5, .* offset 8"):
        stopped.step()
    for reader in (running, restarted):
        taken = reader.step()
        assert [(part.place["from"], part.place["to"]) for part in taken.ranges] == [(5, 5)]
        assert taken.position["lost"] == 3
        assert values(reader.rows(reader.step())) == list(range(100, 110))
        assert reader.step().ranges == []
        assert reader.position["lost"] == 3


def test_a_range_that_was_recorded_before_its_log_was_cut_gives_nothing_of_the_other_tail(topic, source, sender, cut):
    name = topic()
    strict, tolerant, frozen = (source(name, "n BIGINT", failOnDataLoss=lost) for lost in ("true", "false", "false"))
    sender.send(name, *numbered(0, 5))
    taken = []

    def meanwhile():
        sender.send(name, *numbered(5, 10))
        taken.extend([strict.step(), tolerant.step()])
        frozen.connector.freeze(0)

    cut(name, meanwhile)
    sender.send(name, *numbered(100, 110))
    with pytest.raises(FeedChangedError, match="offset 5 at the latest"):
        strict.rows(taken[0])
    assert values(tolerant.rows(taken[1])) == list(range(5))
    assert values(frozen.rows(frozen.step(Limit(rows=3)))) == [0, 1, 2]
    assert values(frozen.rows(frozen.step())) == [3, 4]
    for reader in (tolerant, again(frozen, lambda: source(name, "n BIGINT", failOnDataLoss="false"))):
        assert reader.rows(reader.step()) == []
        assert reader.position["lost"] == 5
        assert values(reader.rows(reader.step())) == list(range(100, 110))
