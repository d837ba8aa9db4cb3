"""`from_numpyro`: makes a model of a NumPyro model."""

from collections.abc import Callable
from typing import Any

from tfp_adaptive.core import optional
from tfp_adaptive.models import model
from tfp_adaptive.models.from_jax import from_jax

_NAME = 'models.from_numpyro'


def from_numpyro(
  numpyro_model: Callable,
  *args: Any,
  **kwargs: Any,
) -> model.Model:
  """Makes a model of a NumPyro model, with its own density and transforms.

  Draws include deterministic sites, and have the names of the sites.

  Args:
    numpyro_model: Function with `numpyro.sample` statements.
    *args: Arguments of the function: the data.
    **kwargs: Named arguments of the function.

  Returns:
    A `Model` for `tfpa.sample_posterior`.

  Raises:
    ImportError: If NumPyro is not installed.
    ValueError: If an unknown is discrete.

  Example:
    import numpyro
    import numpyro.distributions as dist

    def model(y):
      mean = numpyro.sample('mean', dist.Normal(0.0, 10.0))
      numpyro.sample('y', dist.Normal(mean, 1.0), obs=y)

    posterior = tfpa.sample_posterior(
      tfpa.models.from_numpyro(model, y=np.array([1.2, 0.7, 2.1]))
    )
  """
  numpyro = optional.load('numpyro', _NAME, 'numpyro')
  jax = optional.load('jax', _NAME, 'numpyro')
  util = optional.load('numpyro.infer.util', _NAME, 'numpyro')
  key = jax.random.PRNGKey(0)
  seeded = numpyro.handlers.seed(numpyro_model, key)
  sites = numpyro.handlers.trace(seeded).get_trace(*args, **kwargs)
  for name, site in sites.items():
    is_unknown = site['type'] == 'sample' and not site['is_observed']
    if is_unknown and site['fn'].support.is_discrete:
      raise ValueError(
        f'{name} is discrete, and gradients need continuous unknowns. Sum it '
        'out of the model, for example by `numpyro.distributions.'
        'MixtureSameFamily`, or observe it.'
      )
  info = util.initialize_model(
    key, numpyro_model, model_args=args, model_kwargs=kwargs
  )
  return from_jax(
    lambda unknowns: -info.potential_fn(unknowns),
    dict(info.param_info.z),
    shown=info.postprocess_fn,
    dims=_dims(sites),
  )


def _dims(sites):
  """Returns dict of name -> names of dimensions, which plates give."""
  dims = {}
  for name, site in sites.items():
    plates = site.get('cond_indep_stack', ())
    if site['type'] != 'sample' or site['is_observed'] or not plates:
      continue
    rank = len(site['fn'].batch_shape)
    names = [f'{name}_dim_{i}' for i in range(site['value'].ndim)]
    for plate in plates:
      names[rank + plate.dim] = plate.name
    dims[name] = names
  return dims
