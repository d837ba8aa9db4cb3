"""Samplers by name; importing this package registers them."""

from experiments.methods import adaptive
from experiments.methods import baselines
from experiments.methods import entropy_adaptive
from experiments.methods import fisher
from experiments.methods import hamiltonian_abc
from experiments.methods import hyperparameters
from experiments.methods import latent_gaussian
from experiments.methods import peers_blackjax
from experiments.methods import peers_numpyro
from experiments.methods import peers_nutpie
from experiments.methods import peers_tensorflow
from experiments.methods import riemannian
from experiments.methods import surrogate
from experiments.methods import transport
from experiments.methods import windowed
from experiments.methods.base import Method
from experiments.methods.base import MethodParameters

__all__ = [
  'Method',
  'MethodParameters',
  'adaptive',
  'baselines',
  'entropy_adaptive',
  'fisher',
  'hamiltonian_abc',
  'hyperparameters',
  'latent_gaussian',
  'peers_blackjax',
  'peers_numpyro',
  'peers_nutpie',
  'peers_tensorflow',
  'riemannian',
  'surrogate',
  'transport',
  'windowed',
]
