"""A user's script that was written for a GPU, run on the CPU: what it asks of torch and TileLang is answered here."""
