"""Exit codes of failures, and of what was found."""

FAILED = 1
FOUND = 1  # a difference, a danger, a problem: what was looked for
WRONG_USAGE = 2
UNREADABLE = 2  # of commands whose 1 is a result
INTERRUPTED = 130  # what shells report of a process that SIGINT ended

ON_FAILURE = "anamnesis.on_failure"  # key of a command's own code, and of its --json, in a context
