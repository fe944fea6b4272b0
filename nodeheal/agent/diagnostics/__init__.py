"""The diagnostics that a node can run, one file each: the tool, its deadline, and how its output is judged."""
