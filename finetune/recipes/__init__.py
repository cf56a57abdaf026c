"""One file per recipe."""
