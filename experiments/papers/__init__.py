"""The papers' experiments: a YAML config, its methods as cases, its tables."""
