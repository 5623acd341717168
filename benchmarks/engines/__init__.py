"""One script per engine and job; each runs in a process of its own and says what it measured as JSON."""
