"""The tile IR: grammar, text, rules and meaning."""
