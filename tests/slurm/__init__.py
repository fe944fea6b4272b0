"""Against a real Slurm."""
