"""The description of a table: options, layout, keys, history."""
