"""What several families of samplers share."""
