"""Contains the content-addressed store, manifests and keys."""
