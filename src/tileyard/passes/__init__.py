"""Passes: from a Program to a Program."""
