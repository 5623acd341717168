"""Streams combined and ordered: union, merge, ordered release, distinct; purged and released by punctuation."""
