"""The programs of the supervised processes: authors, compile workers, runners."""
