"""Draws the dashboards: real agents on simulated GPUs, a real Prometheus, and the dashboards' own queries."""
