"""The command `amn`."""
