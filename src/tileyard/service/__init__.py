"""The engine process and its client."""
