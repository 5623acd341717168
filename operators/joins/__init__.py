"""Joins of update streams: their pairs, their state, and their results."""
