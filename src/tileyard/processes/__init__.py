"""Supervises processes: starts one, talks to it, ends its whole tree, confirms that it is gone."""
