"""Rows: the system column, event times, buckets, and the newest row of each key."""
