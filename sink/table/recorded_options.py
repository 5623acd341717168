"""The options that a table records, so that a query need not repeat them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from ...delta_format.latest_table import BUCKETS_PROPERTY, KEEP_PROPERTY, KEY_PROPERTY, SEQUENCE_PROPERTY, TIME_PROPERTY
from ..spec.options import STORAGE_PREFIX, parse_sink_options
from ..spec.placement import key_option
from .table import load_table

__all__ = ["recorded_options"]


def recorded_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the key, time, sequence, buckets and history that a table records.

    There are none if no table is there, or if another program made it. `given` has `path` and the store's
    options.
    """
    # The place and the store alone: the other options may need what the table records. Any key will do.
    place = {
        name: value
        for name, value in given.items()
        if name.lower() == "path" or name.lower().startswith(STORAGE_PREFIX)
    }
    table = load_table(parse_sink_options({**place, "key": "k"}, started=False))
    found = {} if table is None else table.metadata().configuration
    if KEY_PROPERTY not in found:
        return {}
    known = {
        "key": key_option(json.loads(found[KEY_PROPERTY])) or None,
        "keep": found.get(KEEP_PROPERTY),
        "sequence": key_option(json.loads(found.get(SEQUENCE_PROPERTY, "[]"))) or None,
        "time": found.get(TIME_PROPERTY),
        "buckets": found.get(BUCKETS_PROPERTY),
    }
    return {name: value for name, value in known.items() if value is not None}
