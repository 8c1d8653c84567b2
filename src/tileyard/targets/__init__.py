"""What Programs are compiled for, one folder each."""
