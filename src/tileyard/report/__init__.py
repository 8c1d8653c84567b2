"""Listeners to the event stream and views of results."""
