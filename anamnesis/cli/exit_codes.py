"""Exit codes of failures."""

FAILED = 1
WRONG_USAGE = 2
UNREADABLE = 2  # of amn scan: a file that may hold anything
INTERRUPTED = 130  # what shells report of a process that SIGINT ended
