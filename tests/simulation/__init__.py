"""The simulation: its own promises, and what it holds the services to."""
