"""What a model folder says of itself, without torch: files, modules, prompts, lengths, tensors, card."""
