"""What runs inside the supervised processes: authors, compile workers, runners."""
