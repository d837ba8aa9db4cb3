"""The engine of all experiments: tasks, resume, executors, records, commands."""
