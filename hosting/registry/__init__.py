"""The continuous queries in force: their changes, the journal of these, and the registry at a version."""
