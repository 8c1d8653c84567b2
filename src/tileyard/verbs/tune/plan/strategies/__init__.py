"""Strategies: what chooses the configs of a study, one module each."""
