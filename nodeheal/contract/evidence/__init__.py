"""Reads what kernels and tools print. Pure, standard library, Python 3.10: the node and the control plane share it."""
