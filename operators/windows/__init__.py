"""Which rows belong to which window: extents, window-ids and panes, as pure functions of numbers."""
