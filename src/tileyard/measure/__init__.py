"""Inputs, comparison of results, timing and statistics."""
