"""What a query's table is, by its own words."""

import pytest

from upstream.conf.errors import OptionError, SchemaError
from upstream.sink.results.result_table import layout_of, target_of, writer_of


def test_options_of_the_sink_reach_the_table(hosted):
    table = hosted.table("a", options=(("durability", "power"), ("storage.region", "eu")))
    target = target_of(table)
    assert (target.is_durable, target.storage, target.options.retention_versions) == (True, {"region": "eu"}, 1_000)
    kept = hosted.table("a", options=(("retentionVersions", "700"),))
    assert target_of(kept).options.retention_versions == 700
    with pytest.raises(OptionError, match="durabilty"):
        target_of(hosted.table("a", options=(("durabilty", "power"),)))


def test_key_kind_and_buckets_make_the_layout(hosted):
    layout = layout_of(hosted.table("a", buckets=5))
    assert (layout.key, layout.time, layout.buckets, layout.keep.count) == (("k",), None, 5, 1)
    feed = layout_of(hosted.table("a", key=(), keep="all", buckets=5))
    assert (feed.key, feed.buckets, feed.keep.count) == ((), 1, None)
    with pytest.raises(SchemaError, match="'x'"):
        layout_of(hosted.table("a", key=("x",)))


def test_equal_tables_share_what_writes_them(hosted):
    one, other = hosted.table("a"), hosted.table("a")
    assert writer_of(one, None) is writer_of(other, None)
    assert writer_of(one, None) is not writer_of(hosted.table("a", 2), None)
    numbered = writer_of(one, {("k",): 4, ("v",): 5, ("_upstream_seq",): 6, ("_upstream_bucket",): 7})
    assert numbered.layout.ids == {("k",): 4, ("v",): 5, ("_upstream_seq",): 6, ("_upstream_bucket",): 7}
