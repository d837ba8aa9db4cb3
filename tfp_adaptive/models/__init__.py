"""Makes models of JAX, NumPyro, PyMC and NumPy for `sample_posterior`."""

from tfp_adaptive.models.from_jax import from_jax
from tfp_adaptive.models.from_numpy import from_numpy
from tfp_adaptive.models.from_numpyro import from_numpyro
from tfp_adaptive.models.from_pymc import from_pymc
from tfp_adaptive.models.model import Model

__all__ = ['Model', 'from_jax', 'from_numpy', 'from_numpyro', 'from_pymc']
