"""Cuts a failing Program down to a small one that still fails. The caller decides what a failure is."""
