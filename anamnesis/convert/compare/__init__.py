"""Two models side by side: their weights matched, and compared by headers or by values."""
