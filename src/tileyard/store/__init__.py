"""Stores trials and history; the only room with SQL."""
