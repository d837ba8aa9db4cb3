"""What runs the steps of `sample_posterior`."""
