"""The command line in a process where heavy libraries cannot be imported."""

BLOCK = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "mteb", "transformers", "sentence_transformers", "sklearn"}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
from harness.cli import invoke
sys.exit(invoke(sys.argv[1:]))
"""
