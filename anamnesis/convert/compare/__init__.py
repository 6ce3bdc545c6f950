"""Two models side by side, by headers or by values."""
