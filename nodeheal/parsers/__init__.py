"""Parses what kernels and tools print. Pure, standard library: the agent, the CLI and the services share it."""
