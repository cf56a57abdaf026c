"""The padding-free encoder: one network for every family of `harness.backbones`."""
