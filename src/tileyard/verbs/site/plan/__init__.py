"""What a site remembers of runs, and how that grows."""
