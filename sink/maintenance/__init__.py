"""Maintenance: compaction, orphans, tombstones that have expired."""
