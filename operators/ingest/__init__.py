"""Ingest of any streaming DataFrame as an update stream: feeds, watermarks, punctuation."""
