"""Maintenance: compaction, removal of old files and log entries, checkpoints."""
