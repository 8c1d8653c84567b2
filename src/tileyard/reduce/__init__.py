"""Cuts a failing Program down to a small one that still fails. Who asks decides what failing is."""
