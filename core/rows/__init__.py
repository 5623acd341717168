"""Rows: the system column, event times, buckets, the newest row per key."""
