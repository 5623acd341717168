"""Watermarks: the event time up to which each feed is complete."""
