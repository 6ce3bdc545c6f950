"""Exit codes of failures."""

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130  # what shells report of a process that SIGINT ended
