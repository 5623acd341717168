"""Tables of other programs, kept up to date by Delta's own MERGE."""
