"""Nodes, machines and pools: their state, their liveness, and what else runs on them."""
