"""Commands for tables: check, repair, rebucket, erase, change the history."""
