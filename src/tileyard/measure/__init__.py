"""Input arrays, comparison of results, timing and statistics."""
