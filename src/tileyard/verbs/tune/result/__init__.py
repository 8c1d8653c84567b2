"""What comes of it, as records."""
