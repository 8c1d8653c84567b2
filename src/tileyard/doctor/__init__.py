"""Checks this host for problems and states how to fix them."""
