"""Mistakes in the synchronization of a kernel: found by running blocks of it, and put into words."""
