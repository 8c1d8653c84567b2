"""Reads suite files strictly: known template values are filled in, and every error names its line."""
