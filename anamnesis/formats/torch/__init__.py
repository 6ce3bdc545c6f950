"""PyTorch's files: ZIP archives, those from before 1.6, TorchScript's tensors."""
