"""How it is shown, during the run and after it."""
