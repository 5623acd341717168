"""Aggregates over the newest row of each key, by group."""
