"""The target ``cuda``: compiles TIR to cubins on machines without a GPU, and runs them on a GPU."""
