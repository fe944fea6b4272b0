"""Which checkpoints lie in a directory, and which of them are whole.

Standard library only: agents import it. Headers and sizes are read, never the weights, and nothing is ever unpickled.
"""
