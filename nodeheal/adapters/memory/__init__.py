"""The twin of every AWS adapter, in memory: for tests, simulation and dry runs. Same specification, same tests."""
