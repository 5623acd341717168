"""Streams put together and put in order: union, merge, ordered release, distinct; purged and released by punctuation."""
