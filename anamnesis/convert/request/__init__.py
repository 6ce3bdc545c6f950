"""What is asked for: by name, by option, in a recipe, and all resolved."""
