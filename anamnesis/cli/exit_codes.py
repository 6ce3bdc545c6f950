"""What the command exits with, but for 0."""

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130  # what shells report of a process that SIGINT ended
