"""The engine process, and the client that talks to it."""
