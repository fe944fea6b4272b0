"""The diagnostics that a node can run, one file each: what is run, how long at most, and what it means."""
