"""Joins of a stream with a table that changes slowly: each batch reads the version that its offsets name."""
