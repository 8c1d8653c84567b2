"""Builds, checks, tunes and regression-tests tile kernels."""
