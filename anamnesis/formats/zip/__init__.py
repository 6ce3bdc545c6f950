"""ZIP archives, read-only; they fail closed."""
