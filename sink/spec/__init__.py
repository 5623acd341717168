"""The requirements on the table: options, layout, keys, history."""
