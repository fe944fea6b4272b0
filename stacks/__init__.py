"""What is deployed. Thin: names and wiring; behaviour lives in nodeheal and lambdas."""
