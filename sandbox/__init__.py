"""A cloud on one machine: an embedded AWS emulator, simulated nodes, and the demo. Never deployed."""
