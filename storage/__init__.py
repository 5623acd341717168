"""Files and objects, on a disk or in a store: read, written as a whole, or put only if absent."""
