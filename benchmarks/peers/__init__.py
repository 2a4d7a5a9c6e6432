"""Public implementations of the rules in other languages: how to call them on draws in a file."""
