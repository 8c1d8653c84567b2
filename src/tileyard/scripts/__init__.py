"""Runs a user's GPU script on the CPU: this room answers the script's calls of torch and TileLang."""
