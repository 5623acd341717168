"""Commands for tables: check, repair, rebucket, erase, another history."""
