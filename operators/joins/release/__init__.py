"""The order in which results of a join leave it, and when rows enter it for that."""
