"""Registers all samplers that configs can name, when this file is imported."""

import importlib

for _module in (
  'adaptive',
  'hamiltonian_abc',
  'jax_peers',
  'latent',
  'nutpie_peer',
  'surrogate',
  'tfp_kernels',
  'windowed',
):
  importlib.import_module(f'experiments.samplers.{_module}')
