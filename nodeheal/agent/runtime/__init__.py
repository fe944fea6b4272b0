"""How the agent's process lives: its configuration, its loop, time, logs, locks, files, and the tools that it runs."""
