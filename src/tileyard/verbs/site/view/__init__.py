"""The pages, and what a command says that has written them."""
