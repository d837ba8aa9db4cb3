"""Studies: what is measured again when the library changes."""
