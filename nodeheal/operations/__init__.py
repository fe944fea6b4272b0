"""What workflows do to the world: one engine, and one file for each verb."""
