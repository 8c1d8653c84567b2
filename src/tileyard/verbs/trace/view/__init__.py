"""Traces of runs and of blocks."""
