"""One module per connector, behind the contract in `contract`."""
