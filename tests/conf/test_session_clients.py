"""Paths and packages of clients of Spark Connect."""

import importlib.util
import os
from types import SimpleNamespace
from typing import Any

import pytest

from upstream.conf import session
from upstream.conf.errors import EnvironmentMissingError
from upstream.conf.locations import is_client, path_on_server

CLIENT: Any = SimpleNamespace()
CLASSIC: Any = SimpleNamespace(_jsparkSession=object())


def test_a_client_has_no_session_of_java():
    assert is_client(CLIENT)
    assert not is_client(CLASSIC)


def test_relative_paths_of_a_client_become_absolute():
    assert path_on_server(CLIENT, "feed/*.csv") == os.path.join(os.getcwd(), "feed", "*.csv")
    for path in ("/data/feed", "s3://lake/feed", "file:///data/feed"):
        assert path_on_server(CLIENT, path) == path
    assert path_on_server(CLASSIC, "feed") == "feed"


def test_packages_that_are_not_there_are_named(monkeypatch):
    def without_zstandard(name: str) -> Any:
        return None if name == "zstandard" else importlib.util.find_spec("json")

    monkeypatch.setattr(session, "find_spec", without_zstandard)
    with pytest.raises(EnvironmentMissingError, match=r"needs zstandard, .*pip install 'pyspark"):
        session.check_client_packages()
    monkeypatch.setattr(session, "find_spec", lambda _: importlib.util.find_spec("json"))
    session.check_client_packages()
