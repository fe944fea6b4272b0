"""Slurm: its controller drains nodes, and restarts its jobs by itself."""
