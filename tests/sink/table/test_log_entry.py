"""Features of tables that other programs have set: followed by each commit, or refused before the first batch."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from kit.sink import Sink

from upstream.conf.errors import TableError
from upstream.delta_format.log import commit_infos
from upstream.sink.spec.options import parse_sink_options
from upstream.sink.table.table import load_table

ENGINES = ("rewrite", "vectors")
_FAR_MS = 4_000_000_000_000


def _demand(sink: Sink, features: Sequence[str], **properties: str) -> None:
    log = sink.log()
    readers = sorted({"deletionVectors", "v2Checkpoint"} & {*features})
    writers = sorted({"appendOnly", "invariants", *features})
    protocol: dict[str, Any] = {"minReaderVersion": 3 if readers else 1, "minWriterVersion": 7}
    protocol |= {"writerFeatures": writers} | ({"readerFeatures": readers} if readers else {})
    metadata = {**log.metadata, "configuration": {**log.metadata["configuration"], **properties}}
    info = {"operation": "UPGRADE PROTOCOL", "inCommitTimestamp": _FAR_MS}
    actions = [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}]
    entry = sink.path / "_delta_log" / f"{sink.version() + 1:020}.json"
    entry.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("feature", ["allowColumnDefaults", "domainMetadata", "identityColumns", "v2Checkpoint"])
def test_a_feature_that_asks_nothing_of_a_commit(sink, feature):
    sink.write(0, [sink.rows([(1, 1, "a"), (2, 1, "b")])])
    _demand(sink, [feature, *(["deletionVectors"] if sink.options["engine"] == "vectors" else [])])
    sink.write(1, [sink.rows([(1, 2, "c")], seq=5)])
    assert sink.latest() == {1: (2, "c"), 2: (1, "b")}


def test_in_commit_timestamps_increase(sink):
    sink.write(0, [sink.rows([(1, 1, "a"), (2, 1, "b")])])
    vectors = ["deletionVectors"] if sink.options["engine"] == "vectors" else []
    _demand(sink, ["inCommitTimestamp", *vectors], **{"delta.enableInCommitTimestamps": "true"})
    before = sink.version()
    for number in (1, 2):
        sink.write(number, [sink.rows([(1, 1 + number, "c")], seq=5 * number)])
    table = load_table(parse_sink_options(sink.given))
    assert table is not None
    stamps = [each["inCommitTimestamp"] for each in commit_infos(table) if each["version"] > before]
    assert stamps == [_FAR_MS + len(stamps) - at for at in range(len(stamps))]
    assert len(stamps) >= 2
    assert sink.latest() == {1: (3, "c"), 2: (1, "b")}


@pytest.mark.parametrize(
    "feature", ["rowTracking", "clustering", "icebergCompatV2", "checkpointProtection", "catalogManaged-not-yet"]
)
def test_a_feature_that_no_commit_follows_is_refused_before_the_first_batch(sink, feature):
    sink.write(0, [sink.rows([(1, 1, "a")])])
    _demand(sink, [feature, "domainMetadata"])
    with pytest.raises(TableError, match=rf"writer with the features {feature}.*DROP FEATURE {feature}"):
        sink.writer()


def test_a_table_that_only_grows_is_refused(sink):
    sink.write(0, [sink.rows([(1, 1, "a")])])
    _demand(sink, [], **{"delta.appendOnly": "true"})
    with pytest.raises(TableError, match=r"only takes new rows.*UNSET TBLPROPERTIES"):
        sink.writer()
