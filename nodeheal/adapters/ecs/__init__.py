"""Everything specific to Amazon ECS: its API, its events, its terms. A cluster's container instances are nodes."""
