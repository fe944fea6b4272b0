"""What is saved of a node before anything is done to it, and whether it still shows its fault."""
