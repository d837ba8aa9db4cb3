"""`tfpa.sample_posterior`: from a model to named draws with a verdict."""
