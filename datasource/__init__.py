"""The source: its connectors, coalescing, progress and punctuation."""
