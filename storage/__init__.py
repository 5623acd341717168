"""Files and objects, on a disk or in a store: read, written whole or not at all, put only if absent."""
