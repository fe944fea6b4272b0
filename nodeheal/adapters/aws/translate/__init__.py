"""Translates what AWS reports about machines, one file a source. Its event shapes go no further than this folder."""
