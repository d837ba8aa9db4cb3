"""`from_pymc`: makes a model of a PyMC model."""

from typing import Any

import numpy as np

from tfp_adaptive.core import optional
from tfp_adaptive.models import model
from tfp_adaptive.models.from_jax import from_jax

_NAME = 'models.from_pymc'


def from_pymc(pymc_model: Any = None) -> model.Model:
  """Makes a model of a PyMC model, with its own density and transforms.

  Names, coordinates and dimensions are kept. Draws include deterministics.

  Args:
    pymc_model: `pymc.Model`. `None`: the model of the enclosing `with` block.

  Returns:
    A `Model` for `tfpa.sample_posterior`.

  Raises:
    ImportError: If PyMC or JAX is not installed.
    ValueError: If an unknown is discrete.

  Example:
    import pymc

    with pymc.Model() as model:
      mean = pymc.Normal('mean', 0.0, 10.0)
      pymc.Normal('y', mean, 1.0, observed=[1.2, 0.7, 2.1])
    posterior = tfpa.sample_posterior(tfpa.models.from_pymc(model))
  """
  pymc = optional.load('pymc', _NAME, 'pymc')
  optional.load('jax', _NAME, 'pymc')
  in_jax = optional.load('pymc.sampling.jax', _NAME, 'pymc')
  pymc_model = pymc.modelcontext(pymc_model)
  discrete = [x.name for x in pymc_model.discrete_value_vars]
  if discrete:
    raise ValueError(
      f'{", ".join(discrete)}: discrete, and gradients need continuous '
      'unknowns. Sum them out of the model, for example by `pymc.Mixture` or '
      '`pymc_extras.marginalize`.'
    )
  values = pymc_model.value_vars
  names = [x.name for x in values]
  log_prob = in_jax.get_jaxified_logp(pymc_model)
  shown = pymc_model.unobserved_value_vars
  # Unconstrained values of transformed variables are left out.
  kept = [
    x for x in shown if x not in values or _is_untransformed(pymc_model, x)
  ]
  to_shown = in_jax.get_jaxified_graph(inputs=values, outputs=kept)
  point = pymc_model.initial_point()
  return from_jax(
    lambda unknowns: log_prob([unknowns[name] for name in names]),
    {name: np.asarray(point[name], float) for name in names},
    shown=lambda unknowns: dict(
      zip((x.name for x in kept), to_shown(*(unknowns[n] for n in names)))
    ),
    coords={
      name: np.asarray(labels)
      for name, labels in pymc_model.coords.items()
      if labels is not None
    },
    dims={
      name: list(dims)
      for name, dims in pymc_model.named_vars_to_dims.items()
      if name in {x.name for x in kept} and all(dims)
    },
  )


def _is_untransformed(pymc_model, value):
  variable = pymc_model.values_to_rvs[value]
  return pymc_model.rvs_to_transforms[variable] is None
