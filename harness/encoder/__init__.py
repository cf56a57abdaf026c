"""A model: its families, its folder, its loading, its checks, and the engines that run it."""
