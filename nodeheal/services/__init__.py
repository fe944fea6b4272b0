"""One use case a file. Ports come in as arguments; nothing here knows AWS."""
