"""What is read, and who may read it."""
