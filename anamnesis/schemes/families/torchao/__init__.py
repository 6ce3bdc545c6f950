"""torchao: tensors of classes of its own, in safetensors and in pickles."""
