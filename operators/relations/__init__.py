"""The engine of continuous queries: changes in, changes out, in columns."""
