"""Priors of latent Gaussian fields, by the structure of their covariance."""

from tfp_adaptive.gaussian_priors.spectral import spectral

__all__ = ['spectral']
