"""The checks of a node, one file each."""
