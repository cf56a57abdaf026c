"""A process where heavy libraries cannot be imported, and the command line in one."""

BLOCKER = """
import sys
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"torch", "mteb", "transformers", "sentence_transformers", "sklearn"}:
            raise ImportError("blocked: " + name)
sys.meta_path.insert(0, Block())
"""

BLOCK = f"""{BLOCKER}
from harness.cli import invoke
sys.exit(invoke(sys.argv[1:]))
"""
