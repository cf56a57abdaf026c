"""What the README of a model says that needs this package to be loaded."""

from __future__ import annotations

from pathlib import Path

NEEDED = """## Loading

The architecture is one that transformers has no class for. Install `encoder-harness` and register it
first; transformers and sentence-transformers then load the model as any other:

```python
import harness

harness.register()
```
"""


def require_import(folder: Path) -> None:
    """Have the README of a model folder say that it needs `harness.register()`, once."""
    readme = folder / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.is_file() else ""
    if NEEDED not in text:
        readme.write_text(f"{text.rstrip()}\n\n{NEEDED}".lstrip(), encoding="utf-8")
