"""From what is asked to what is written: request, plan, bands, staging, result."""
