"""The engine's side: what is read, chosen and run."""
