"""Training jobs: their runs, their nodes, their checkpoints, and what a restart costs."""
