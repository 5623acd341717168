"""Joins of update streams: which rows meet, what is kept of each side and until when, and what is given."""
