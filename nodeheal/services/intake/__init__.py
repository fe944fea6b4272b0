"""Records facts that arrive: events, heartbeats, signals of AWS, answers of nodes."""
