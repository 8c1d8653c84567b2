"""One folder per verb."""
