"""All samplers that configs can name; importing this module registers them."""

from experiments.samplers import adaptive
from experiments.samplers import hamiltonian_abc
from experiments.samplers import jax_peers
from experiments.samplers import latent
from experiments.samplers import nutpie_peer
from experiments.samplers import surrogate
from experiments.samplers import tfp_kernels
from experiments.samplers import windowed

__all__ = [
  'adaptive',
  'hamiltonian_abc',
  'jax_peers',
  'latent',
  'nutpie_peer',
  'surrogate',
  'tfp_kernels',
  'windowed',
]
