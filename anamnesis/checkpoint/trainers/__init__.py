"""What trainers leave behind: distributed checkpoints, ranks of one model in many files."""
