"""Rows of any streaming DataFrame become update streams: feeds, progress, punctuation."""
