"""What a model folder says of itself, without torch: files, modules, pooling, prompts, lengths, tensors."""
