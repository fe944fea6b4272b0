"""Turns what other systems say into our own terms, one file a source. Foreign shapes stop here."""
