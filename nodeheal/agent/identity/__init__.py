"""Who this node is and what it is made of: its keys, its session, its machine, its accelerators' serials."""
