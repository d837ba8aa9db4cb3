"""`tfpa.sample` and its parts: blocks of steps, progress, files, diagnoses."""
