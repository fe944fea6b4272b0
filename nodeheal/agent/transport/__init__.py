"""How what the node reports reaches AWS: events with their spool and sender, heartbeats, metrics, and uploads."""
