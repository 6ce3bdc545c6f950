"""Exit codes of failures."""

FAILED = 1
DIFFERS = 1  # of two things that are compared
WRONG_USAGE = 2
TROUBLE = 2  # where 1 means a result: that models differ, say
ON_FAILURE = "anamnesis.on_failure"  # key of a command's own code, in a context
INTERRUPTED = 130  # what shells report of a process that SIGINT ended
