"""Tables laid out by another program, kept up to date by Delta's own MERGE."""
