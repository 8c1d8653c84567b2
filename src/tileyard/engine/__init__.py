"""Decides what runs next, and drives the workers that run it."""
