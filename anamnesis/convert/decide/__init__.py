"""What becomes of each weight, decided once."""
