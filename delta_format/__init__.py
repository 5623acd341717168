"""The Delta format: its log, deletion vectors and column mapping, and the names that a latest table uses."""
