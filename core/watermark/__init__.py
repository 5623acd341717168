"""Watermarks: how far a feed is complete."""
