"""Which stored tensors make which weight: registry, ledger, facts, names."""
