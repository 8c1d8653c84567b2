"""Stands for a check of sources."""
