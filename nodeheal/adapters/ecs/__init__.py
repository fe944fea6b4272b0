"""Everything that knows Amazon ECS: its API, its events, its words. A cluster's container instances are nodes."""
