"""Data sets of the papers: addresses, checksums, readers and one command."""
