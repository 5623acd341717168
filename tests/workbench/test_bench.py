"""Routes for plain functions: numbers of a request, values that JSON lacks, and the limit of time."""

import contextlib
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

import pytest
from kit.sink import Sink
from kit.waiting import wait_for
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from upstream.conf.errors import OptionError
from upstream.workbench import bench as bench_of
from upstream.workbench import table_view
from upstream.workbench.bench import AnswerProcess, Bench, count_of
from upstream.workbench.watch import Watch


@pytest.fixture
def answered(tmp_path):
    bench = Bench(Watch([str(tmp_path)], {}), control=True)

    def answer(handler):
        with TestClient(Starlette(routes=[bench.endpoint("/it", handler)])) as client:
            return client.get("/it")

    return answer


@pytest.mark.parametrize(("text", "found"), [("", 7), ("100", 100), ("0", 0)])
def test_a_number_of_a_request(text, found):
    assert count_of(asked(text), "n", 7, 100) == found


@pytest.mark.parametrize("text", ["101", "-1", "٣", "1e3", "9" * 30])
def test_a_number_that_is_none_or_too_large_is_refused(text):
    with pytest.raises(OptionError, match="a whole number from 0 to 100"):
        count_of(asked(text), "n", 7, 100)


def asked(text):
    return Request({"type": "http", "query_string": urlencode({"n": text}).encode(), "headers": []})


def test_floats_that_json_lacks_are_null(answered):
    assert answered(lambda _: [float("nan"), float("inf"), 1.5]).json() == [None, None, 1.5]


def test_an_answer_that_takes_too_long_is_given_up(answered, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr(bench_of, "_LIMIT_S", 0.05)
    assert answered(lambda _: done.wait()).status_code == 503
    done.set()


def test_a_process_answers_until_it_is_idle_and_another_one_follows_a_crash(tmp_path):
    sink = Sink(tmp_path)
    sink.batch(0, [sink.rows([(1, 10, "a")])])
    watch = Watch([str(tmp_path)], {})
    given = [table_view.__name__], watch.locations, {}
    with answering(watch, AnswerProcess(*given, control=True, idle_s=0.0)) as (client, process):
        assert client.get("/api/v1/table/rows").json()["rows"] == [[1, 10, "a"]]
        assert client.head("/api/v1/table/rows").status_code == 200
        wait_for(lambda: process.pid is None, what="the end of an idle process")
    with answering(watch, AnswerProcess(*given, control=True)) as (client, process), ThreadPoolExecutor() as pool:
        assert client.get("/api/v1/table/rows?limit=many").json()["expected"] == "a whole number from 0 to 500"
        os.kill(process.pid, signal.SIGSTOP)
        coming = pool.submit(client.get, "/api/v1/table/rows")
        wait_for(lambda: process.waiting, what="the request")
        os.kill(process.pid, signal.SIGKILL)
        assert (coming.result().status_code, coming.result().json()["hint"]) == (503, "try again")
        sink.batch(1, [sink.rows([(1, 11, "b")], seq=1)])
        assert client.get("/api/v1/table/rows").json()["rows"] == [[1, 11, "b"]]
    wait_for(lambda: process.pid is None, what="the end of a process that was stopped")


@contextlib.contextmanager
def answering(watch, process):
    routes = table_view.routes(Bench(watch, control=True, process=process))
    with TestClient(Starlette(routes=routes)) as client:
        yield client, process
    process.stop()
