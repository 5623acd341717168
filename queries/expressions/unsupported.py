"""Functions of Spark SQL that queries cannot use, with alternatives."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["hint_for"]

_MOMENT = "a query's answer depends on its rows alone; compare with the event time"
_CHANCE = "a query's answer depends on its rows alone; SAMPLE takes a share of the rows"
_NESTED = "read the values from columns of their own: prepare them in the DataFrame before the stream is registered"
_TEXT = "write it as a column of the DataFrame before the stream is registered"

_GROUPS: Mapping[str, tuple[str, ...]] = {
    _MOMENT: ("current_date", "current_timestamp", "now", "curdate", "localtimestamp", "current_time"),
    _CHANCE: ("rand", "random", "randn", "uniform", "randstr", "shuffle"),
    "a query's answer depends on its rows alone": ("uuid", "current_user", "version", "input_file_name"),
    _NESTED: (
        *("aggregate", "array", "array_append", "array_distinct", "array_except", "array_intersect", "array_sort"),
        *("array_union", "arrays_overlap", "arrays_zip", "exists", "explode", "filter", "flatten", "forall", "map"),
        *("map_concat", "map_filter", "map_from_arrays", "map_keys", "map_values", "named_struct", "posexplode"),
        *("reduce", "sequence", "slice", "sort_array", "split", "str_to_map", "struct", "transform", "zip_with"),
        *("from_csv", "from_json", "from_xml", "get_json_object", "json_array_length", "json_tuple", "parse_json"),
        *("parse_url", "schema_of_json", "to_csv", "to_json", "to_xml", "variant_get", "xpath"),
    ),
    _TEXT: (
        *("aes_decrypt", "aes_encrypt", "conv", "format_number", "format_string", "levenshtein", "luhn_check", "mask"),
        *("printf", "regexp_extract_all", "sentences", "soundex", "to_char", "to_number", "url_decode", "url_encode"),
    ),
    "use CASE n WHEN 1 THEN … WHEN 2 THEN … END": ("elt",),
    "add INTERVAL '1' DAY, or use timestampadd with a unit": ("make_interval", "make_dt_interval", "make_ym_interval"),
    "use regexp_extract or rlike": ("regexp_instr", "regexp_count", "regexp_substr"),
    "leave such rows out with WHERE": ("assert_true", "raise_error"),
    "move the time by an interval: times are in UTC": ("convert_timezone", "from_utc_timestamp", "to_utc_timestamp"),
    "use TUMBLE or HOP in FROM": ("window", "session_window"),
    "use || and coalesce": ("listagg", "string_agg"),
}
_HINTS = {name: hint for hint, names in _GROUPS.items() for name in names}


def hint_for(function: str) -> str:
    """Return the alternative to a function of Spark that is not evaluated here; empty if there is none."""
    return _HINTS.get(function, "")
