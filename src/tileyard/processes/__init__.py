"""Supervision: start a process, talk to it, end its whole tree, confirm that it is gone."""
