"""Turns a Program into readable C for one kind of CPU."""
