"""How rows and progress get in: the source, its connectors, coalescing and punctuation."""
