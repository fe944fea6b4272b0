"""What a report means: the catalog, faults read together, and what they are about."""
