"""The operator's command, `nodeheal`."""
