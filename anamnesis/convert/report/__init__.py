"""What users are told: of a model, of what stands in the way, of what was done."""
