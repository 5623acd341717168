"""The number of partitions of a host's stages; what Spark makes of it is in test_running_on_spark.py."""

import types

import pytest

from upstream.hosting.job import at_most_partitions

NAME = "spark.sql.shuffle.partitions"


class Settings(dict):
    """As a session's: Spark takes numbers and gives texts."""

    def set(self, name, value):
        self[name] = str(value)


@pytest.mark.parametrize(("given", "meanwhile"), [("200", "8"), ("9", "8"), ("8", "8"), ("2", "2")])
def test_a_query_starts_with_as_many_as_there_are_shards_and_the_session_keeps_its_own(given, meanwhile):
    session = types.SimpleNamespace(conf=Settings({NAME: given}))
    with at_most_partitions(session, 8):
        assert session.conf == {NAME: meanwhile}
    assert session.conf == {NAME: given}


def test_the_session_keeps_its_own_where_the_start_fails():
    session = types.SimpleNamespace(conf=Settings({NAME: "200"}))
    with pytest.raises(RuntimeError), at_most_partitions(session, 8):
        raise RuntimeError
    assert session.conf == {NAME: "200"}
