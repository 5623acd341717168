"""What is asked of the table: options, layout, keys, history."""
