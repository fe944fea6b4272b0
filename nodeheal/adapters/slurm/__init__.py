"""Slurm: nodes that its controller drains, jobs that it starts again by itself."""
