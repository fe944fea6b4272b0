"""The agent: what runs on nodes."""
