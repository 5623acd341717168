"""``upstream sql``: continuous queries from the shell."""
