"""Reads what kernels and tools print. Pure, standard library: the node and the control plane share it."""
