"""The public face: read, a stream that can be written, in one place."""
