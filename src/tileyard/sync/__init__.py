"""Finds mistakes in the synchronization of a kernel by running some of its blocks, and describes them."""
