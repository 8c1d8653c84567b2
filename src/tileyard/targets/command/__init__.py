"""The target ``command``: the user's programs as steps of a case."""
