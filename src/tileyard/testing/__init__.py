"""Contracts that every target, store and sampler must pass, and pieces for tests."""
