"""One file per way of looking at a node."""
