"""Which continuous queries are in force: changes, their journal, and what they add up to."""
