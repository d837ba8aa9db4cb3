"""`sample`: any kernel in blocks, with progress and checkpoints."""
