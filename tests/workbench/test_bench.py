"""Routes for plain functions: numbers of a request, values that JSON lacks, and the limit of time."""

import threading
from urllib.parse import urlencode

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.testclient import TestClient

from upstream.conf.errors import OptionError
from upstream.workbench import bench as bench_of
from upstream.workbench.bench import Bench, count_of
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
    assert answered(lambda _: done.wait(10)).status_code == 503
    done.set()
