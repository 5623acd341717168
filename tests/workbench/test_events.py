"""Events of commits: each once, none lost over a reconnect, one reader for all."""

import asyncio
import json

import pytest
from kit.sink import Sink

from upstream.workbench import events
from upstream.workbench.bench import Bench
from upstream.workbench.watch import Watch


@pytest.fixture
def sink(tmp_path):
    sink = Sink(tmp_path)
    commit(sink, 0)
    return sink


def commit(sink, batch):
    sink.batch(batch, [sink.rows([(batch, 10 + batch, "a")], seq=batch)])


def batches(texts):
    return [json.loads(text.split("data: ")[1])["batch_id"] for text in texts if "data: " in text]


async def take(stream, count):
    found = []
    async for text in stream:
        found += batches([text])
        if len(found) >= count:
            break
    return found


def run(work):
    asyncio.run(asyncio.wait_for(work, 20))


def test_a_page_gets_each_commit_and_after_a_reconnect_all_that_it_missed(sink):
    async def work():
        bench = Bench(Watch([str(sink.path)], {}), control=True)
        bench.watch.refresh()
        table = bench.watch.table()
        first = table.version
        async with events.reading(bench.events):
            stream = bench.events.stream(table.name, None)
            taking = asyncio.create_task(take(stream, 2))
            await asyncio.sleep(0)
            for batch in (1, 2):
                await asyncio.to_thread(commit, sink, batch)
            assert await taking == [1, 2]
            await stream.aclose()
            await asyncio.to_thread(commit, sink, 3)
            again = bench.events.stream(table.name, first)
            assert await take(again, 3) == [1, 2, 3]
            await again.aclose()
        assert bench.events._clients == {}

    run(work())


def test_a_page_that_does_not_read_is_sent_away_and_loses_nothing(sink, monkeypatch):
    monkeypatch.setattr(events, "_WAITING", 2)

    async def work():
        bench = Bench(Watch([str(sink.path)], {}), control=True)
        bench.watch.refresh()
        name, first = bench.watch.table().name, bench.watch.table().version
        stream = bench.events.stream(name, None)
        assert (await anext(stream)).startswith("retry")
        for batch in (1, 2, 3):
            commit(sink, batch)
        bench.events._publish(name, bench.watch.refresh([name])[name])
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
        assert await take(bench.events.stream(name, first), 3) == [1, 2, 3]

    run(work())


def test_a_commit_that_comes_while_the_missed_ones_are_read_is_given_once(sink):
    async def work():
        bench = Bench(Watch([str(sink.path)], {}), control=True)
        bench.watch.refresh()
        name, first = bench.watch.table().name, bench.watch.table().version
        stream = bench.events.stream(name, first)
        assert (await anext(stream)).startswith("retry")
        for batch in (1, 2):
            commit(sink, batch)
            bench.events._publish(name, bench.watch.refresh([name])[name])
        missed = [await anext(stream) for _ in range(2)]
        commit(sink, 3)
        bench.events._publish(name, bench.watch.refresh([name])[name])
        assert batches([*missed, await anext(stream)]) == [1, 2, 3]

    run(work())


def test_the_reader_goes_on_after_a_table_could_not_be_read(sink, monkeypatch, caplog):
    monkeypatch.setattr(events, "_POLL_S", 0.01)

    async def work():
        bench = Bench(Watch([str(sink.path)], {}), control=True)
        table = bench.watch.table()
        whole, calls = table.refresh, []

        def refresh():
            calls.append(None)
            if len(calls) == 1:
                raise OSError("the store is away")
            return whole()

        monkeypatch.setattr(table, "refresh", refresh)
        async with events.reading(bench.events):
            assert await take(bench.events.stream(table.name, None), 1) == [0]

    run(work())
    assert "the store is away" in caplog.text
