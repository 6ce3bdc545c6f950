"""How each producer stores integers: a file each."""
