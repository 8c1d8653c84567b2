"""The `cpu` target: Program to C to shared object, run on threads of our own."""
