"""The target ``command``: programs of the user's own as the steps of a case."""
