"""The words of the harness and their form: types, identities, errors, documents; no I/O but small files."""
