"""The latest-per-key Delta table: the writer, its commits, and what they report."""
