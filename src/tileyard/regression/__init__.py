"""Comparisons of A against B."""
