"""The verb ``exec``: a GPU script on the CPU."""
