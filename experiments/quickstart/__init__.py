"""Two posteriors, `sample_posterior` and TFP's NUTS: the first thing to run."""
