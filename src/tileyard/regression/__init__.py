"""Comparisons of two versions, base and head."""
