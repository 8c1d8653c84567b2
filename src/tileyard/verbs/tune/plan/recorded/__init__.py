"""Recorded spaces: files with every config's measurement, read, written, and searched with no device."""
