"""The content-addressed store, manifests and keys."""
