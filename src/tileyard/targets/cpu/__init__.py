"""The `cpu` target: compiles a Program to C and to a shared object, and runs it on its own threads."""
