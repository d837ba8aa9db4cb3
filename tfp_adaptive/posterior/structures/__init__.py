"""Which structure the sampler has: a matrix, a map, an exchange."""
