"""A broker that cannot be reached is an error within seconds, in words."""

from __future__ import annotations

import socket
import time

import pytest

from upstream.conf.errors import UpstreamError
from upstream.datasource.connectors.kafka.client import Cluster
from upstream.datasource.connectors.kafka.options import KafkaOptions


@pytest.mark.slow
@pytest.mark.parametrize("listens", [False, True], ids=["nobody listens", "nobody answers"])
def test_a_broker_that_never_answers_is_an_error_within_fifteen_seconds(listens: bool) -> None:
    pytest.importorskip("confluent_kafka")
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        if listens:
            held.listen()
        options = KafkaOptions(servers=f"127.0.0.1:{held.getsockname()[1]}", subscribe=("t",))
        began = time.monotonic()
        with pytest.raises(UpstreamError, match="no broker has answered within 10 s") as error:
            Cluster(options).topics()
        assert time.monotonic() - began < 15
        assert "What to do:" in str(error.value)
