"""The Delta format: the log, deletion vectors, column mapping, and the names that a latest table uses."""
