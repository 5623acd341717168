"""Relations at a time: windows over streams and the relational algebra above them."""
