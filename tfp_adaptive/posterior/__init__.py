"""A model in, a verdict and named draws out: `tfpa.sample_posterior`."""
