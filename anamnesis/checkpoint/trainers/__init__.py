"""What trainers leave behind: one model in the files of many ranks."""
