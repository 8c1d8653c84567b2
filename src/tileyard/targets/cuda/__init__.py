"""The target ``cuda``: TIR becomes cubins on machines without a GPU, and runs where there is one."""
