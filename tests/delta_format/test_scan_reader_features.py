"""Tables that cannot be read right are refused when they are named."""

import json

import pytest

from upstream.conf.errors import TableError
from upstream.operators.tables.reading import pinned_table


@pytest.mark.parametrize(
    ("features", "kind", "words"),
    [
        (["collations"], "string", "collations"),
        (["variantType"], {"type": "struct", "fields": [{"name": "in", "type": "variant"}]}, "VARIANT: v.*to_json"),
        (["deletionVectors", "v2Checkpoint", "vacuumProtocolCheck"], "string", "together.*DROP FEATURE"),
    ],
)
def test_a_table_that_cannot_be_read_right_is_refused(tmp_path, features, kind, words):
    field = {"name": "v", "type": kind, "nullable": True, "metadata": {}}
    if isinstance(kind, dict):
        kind["fields"][0] |= {"nullable": True, "metadata": {}}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}
    metadata = {"id": "t", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [], "createdTime": 0}
    metadata |= {"schemaString": json.dumps({"type": "struct", "fields": [field]}), "configuration": {}}
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text(json.dumps({"protocol": protocol}) + "\n" + json.dumps({"metaData": metadata}))
    with pytest.raises(TableError, match=words):
        pinned_table(str(tmp_path), {})
