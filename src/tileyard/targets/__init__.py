"""The targets that Programs are compiled for, one folder each."""
