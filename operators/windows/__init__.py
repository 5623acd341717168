"""Windows: the extents, window-ids and panes of rows, as pure functions of numbers."""
