"""Test doubles of the project's own tests, which workers import by name. No wheel has them."""
