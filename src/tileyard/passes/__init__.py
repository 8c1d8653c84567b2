"""Rewrites from Program to Program, one per module."""
