"""What nodeheal does on a real Slurm; skipped where none is installed."""
