"""What runs on machines of Slurm: the prolog of compute nodes, and the commands on a controller."""
