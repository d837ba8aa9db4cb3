"""The engine: tasks, resume, executors, records and the command line."""
