"""A check as people and other programs read it: terminal, Markdown, JUnit."""
