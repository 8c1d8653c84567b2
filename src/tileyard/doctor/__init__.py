"""What can be wrong with this host, looked for and said with what to do about it."""
