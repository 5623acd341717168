"""Tables laid out by somebody else, kept up to date by Delta's own MERGE."""
