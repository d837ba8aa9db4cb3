"""Samplers of latent fields with a given Gaussian prior.

Symbols in this folder:

    x, y       current and proposed field, [chains..., d]
    f, g       log likelihood and its gradient
    m, C       mean and covariance of the prior
    delta      size of a step, a variance; t = delta / 2
    R          C (C + t I)^-1, the gain
    u, z       auxiliary fields
    e          standard normal noise
    theta, p   hyperparameters of the prior, and their prior density
"""
