"""Streams that queries can name; what they have on real Spark is in test_queries_on_spark.py."""

import pytest

from upstream.api.definitions import definition_of
from upstream.conf.errors import OptionError


def test_what_is_no_stream_is_refused():
    with pytest.raises(OptionError, match="stream='feed/'"):
        definition_of("buses", "feed/", updates=True)
