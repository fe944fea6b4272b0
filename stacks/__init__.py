"""The deployed stacks. Thin: names and wiring; the behaviour is in nodeheal and lambdas."""
