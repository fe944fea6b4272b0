"""Lists the checkpoints in a directory, and decides which of them are whole.

Standard library only: agents import it. It reads headers and sizes, never the weights, and never unpickles anything.
"""
