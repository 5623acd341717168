"""Log entries by the Delta format's own rules, for commits that delta-rs cannot make."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from ...conf.errors import TableError
from ...delta_format.column_mapping import FEATURE as MAPPING
from ...delta_format.latest_table import BUCKET
from ...delta_format.log import LogReplay, commit_info, entry_place
from ...storage.folder import is_inside
from .file_statistics import loosened
from .files import StagedFile

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ...delta_format.deletion_vectors import DeletionVector
    from ...storage.folder import TableFolder
    from ..spec.options import SinkTarget


Action = dict[str, Any]

_FEATURE = "deletionVectors"
VECTORS_ENABLED = "delta.enableDeletionVectors"
"""The property by which a table says whether it has deletion vectors; `false` forbids them."""

# What a writer has to heed by each number of the old protocols; a protocol that lists its features lists these as well.
_IMPLIED = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: (MAPPING,),
    6: ("identityColumns",),
}
# Under these an entry needs nothing beyond what is written here, or the table's columns cannot use them.
_HEEDED = {
    _FEATURE,
    MAPPING,  # other names in files are refused when the table is looked at
    "invariants",
    "timestampNtz",
    "changeDataFeed",
    "checkConstraints",
    "generatedColumns",
    "identityColumns",
    "allowColumnDefaults",
    "domainMetadata",
    "inCommitTimestamp",
    "appendOnly",
}
_BY_DELTA_RS = {name for names in _IMPLIED.values() for name in names} - {"identityColumns"} | {
    _FEATURE,
    "timestampNtz",
    "v2Checkpoint",
    "variantType",
}
"""Features under which delta-rs (1.6) commits, where entries are not written here."""
_STAMPED = "delta.enableInCommitTimestamps"
_STAMP = "inCommitTimestamp"


def add_action(file: StagedFile, written_ms: int, *, changed: bool = True) -> Action:
    """Return the action of a data file that joins the table; `changed` is False if its rows are not new to it."""
    return {
        "add": {
            "path": file.path,
            "partitionValues": {} if file.bucket is None else {BUCKET: str(file.bucket)},
            "size": file.size,
            "modificationTime": written_ms,
            "dataChange": changed,
            "stats": file.stats,
        }
    }


def removed_action(add: Mapping[str, Any], written_ms: int, *, changed: bool = True) -> Action:
    """Return the action that removes the file of an `add`. `changed` is False if its rows stay in the table."""
    removed: Action = {
        "path": add["path"],
        "deletionTimestamp": written_ms,
        "dataChange": changed,
        "extendedFileMetadata": True,
        "partitionValues": add["partitionValues"],
        "size": add["size"],
    }
    for name in ("tags", "deletionVector", "baseRowId", "defaultRowCommitVersion"):
        if add.get(name) is not None:
            removed[name] = add[name]
    return {"remove": removed}


def marked_actions(add: Mapping[str, Any], vector: DeletionVector, rows: int, written_ms: int) -> list[Action]:
    """Return the actions that mark more rows of a data file as dead; it has `rows` rows."""
    again = {
        **add,
        "dataChange": True,
        "stats": loosened(add.get("stats"), rows),
        "deletionVector": vector.to_json(),
    }
    return [removed_action(add, written_ms), {"add": again}]


def check_features(log: LogReplay, location: str) -> None:
    """Refuse a table with features whose rules our entries do not follow; the error names them."""
    unheeded = _unheeded(_features(log), log.metadata.get("configuration", {}))
    if unheeded:
        raise TableError(
            f"the table at {location} uses {', '.join(unheeded)}, whose rules these commits do not follow",
            expected="a table without it",
            hint="drop it from Spark (ALTER TABLE … DROP FEATURE, or UNSET TBLPROPERTIES)",
        )


def check_writable(target: SinkTarget, table: DeltaTable, *, replaces: bool) -> None:
    """Refuse, before the first batch, a table with features whose rules no commit follows; the error names them."""
    protocol, configuration = table.protocol(), table.metadata().configuration
    features = _said_by(protocol.writer_features, protocol.min_writer_version)
    # In a store, delta-rs commits what only replaces buckets.
    strange = sorted(features - _HEEDED - _BY_DELTA_RS)
    ours = target.is_local and not _unheeded(features, configuration)
    refused = [] if ours else strange or sorted(features - _BY_DELTA_RS)
    if refused:
        raise TableError(
            f"the table at {target.location} needs a writer with the features {', '.join(refused)}",
            expected=f"no feature but {', '.join(sorted(_BY_DELTA_RS))}",
            hint=f"drop it from Spark (ALTER TABLE delta.`{target.location}` DROP FEATURE {refused[0]}), or write to a "
            "table at another path",
        )
    if replaces and str(configuration.get("delta.appendOnly")).lower() == "true":
        raise TableError(
            f"the table at {target.location} only takes new rows (delta.appendOnly is true), and this sink replaces "
            "rows",
            expected="a table whose rows may be replaced, or history=all",
            hint=f"ALTER TABLE delta.`{target.location}` UNSET TBLPROPERTIES ('delta.appendOnly')",
        )


def commit_stamp(log: LogReplay, folder: TableFolder) -> dict[str, int]:
    """Return the timestamp for `commitInfo` of a table with in-commit timestamps, later than its last commit's."""
    if str(log.metadata.get("configuration", {}).get(_STAMPED)).lower() != "true":
        return {}
    before = (commit_info(folder, log.version) or {}).get(_STAMP, 0)
    return {_STAMP: max(int(time.time() * 1000), int(before) + 1)}


def may_put_entries(target: SinkTarget, table: DeltaTable | None) -> bool:
    """Return True if this package can write log entries to a table, or to a new one (None)."""
    # With the engine that replaces whole buckets, a store is not even asked whether it can.
    if not target.is_local and (target.options.engine == "rewrite" or target.folder.puts_refused() is not None):
        return False
    if table is None:
        return True
    protocol = table.protocol()
    features = _said_by(protocol.writer_features, protocol.min_writer_version)
    return not _unheeded(features, table.metadata().configuration)


def vector_protocol(log: LogReplay) -> list[Action]:
    """Return the actions required before the table's first deletion vector; none if the log has them."""
    configuration = log.metadata.get("configuration", {})
    wanted = with_vectors(log.protocol)
    said: list[Action] = [] if wanted is None else [{"protocol": wanted}]
    if str(configuration.get(VECTORS_ENABLED)).lower() != "true":
        said.append({"metaData": {**log.metadata, "configuration": {**configuration, VECTORS_ENABLED: "true"}}})
    return said


def with_vectors(protocol: Mapping[str, Any]) -> Action | None:
    """Return the protocol that a table with deletion vectors needs; None if it has it."""
    return with_features(protocol, [_FEATURE])


def with_features(protocol: Mapping[str, Any], wanted: Iterable[str]) -> Action | None:
    """Return the protocol with more features of readers and writers; None if it has them."""
    new = set(wanted)
    features = _said_by(protocol.get("writerFeatures"), protocol["minWriterVersion"])
    readers: set[str] = set(protocol.get("readerFeatures") or ()) | ({MAPPING} & features)
    if new <= features and new <= readers:
        return None
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": sorted(readers | new),
        "writerFeatures": sorted(features | new),
    }


def _features(log: LogReplay) -> set[str]:
    return _said_by(log.protocol.get("writerFeatures"), log.protocol["minWriterVersion"])


def _said_by(listed: Iterable[str] | None, number: int) -> set[str]:
    if listed is not None:
        return set(listed)
    return {name for least, names in _IMPLIED.items() if number >= least for name in names}


def _unheeded(features: set[str], configuration: Mapping[str, Any]) -> list[str]:
    forbids = str(configuration.get("delta.appendOnly")).lower() == "true"
    return sorted(features - _HEEDED) + (["delta.appendOnly"] if forbids else [])


def put_entry(folder: TableFolder, version: int, info: Mapping[str, Any], actions: Iterable[Action]) -> bool:
    """Write the entry of a version, whole or not at all; return False if another writer has written one.

    An OSError may also mean that an object store has not confirmed the write.
    """
    # The id, as Spark's commits have one, tells our entry from that of somebody who does the same at the same moment.
    listed = list(actions)
    # Before the entry can be seen. Files that lie elsewhere were there before.
    added = [unquote(each["add"]["path"]) for each in listed if "add" in each]
    folder.sync(path for path in added if is_inside(path) and folder.has(path))
    by = {"timestamp": int(time.time() * 1000), "txnId": str(uuid.uuid4()), "engineInfo": "pyspark-upstream"}
    first = {"commitInfo": {**by, **({"readVersion": version - 1} if version else {}), **info}}
    content = "\n".join(json.dumps(each, ensure_ascii=False, separators=(",", ":")) for each in [first, *listed])
    return folder.put_new(entry_place(version), content.encode())
