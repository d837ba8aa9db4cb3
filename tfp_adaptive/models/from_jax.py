"""`from_jax`: makes a model of a log density in JAX."""

import re
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import custom_gradient
from tfp_adaptive.core import optional
from tfp_adaptive.models import model

_NAME = 'models.from_jax'

# Custom calls of JAX that TensorFlow's XLA has too, unlike those of LAPACK.
_KNOWN_CALLS = frozenset(['Sharding', 'SPMDFullToShardShape'])


def from_jax(
  log_prob: Callable[[Any], Any],
  init: Any,
  bijectors: Any = None,
  *,
  vectorized: bool = False,
  dtype: Any = None,
  shown: Callable[[Any], Mapping[str, Any]] | None = None,
  coords: Mapping[str, Sequence] | None = None,
  dims: Mapping[str, Sequence[str]] | None = None,
) -> model.Model:
  """Makes a model of a log density in JAX.

  If possible, TensorFlow's XLA compiles the density with the steps. If not, for
  example because JAX factors matrices by LAPACK, JAX compiles the density, and
  steps without XLA call it.

  Args:
    log_prob: Function of one argument, the unknowns of one chain in the
      structure of `init`, which returns their log density, a scalar.
    init: The unknowns, a structure of dicts, lists and tuples of arrays or of
      `jax.ShapeDtypeStruct`, of floating dtypes. Their values are not used.
    bijectors: `tfb.Bijector`s onto the supports, in the structure of `init` or
      a dict with some of its names. Other unknowns are unbounded.
    vectorized: Whether `log_prob` takes unknowns [chains, event...] and returns
      [chains].
    dtype: Dtype of the computation, `'float32'` or `'float64'`. `None`: float64
      on a CPU, even without `jax_enable_x64`, and float32 on a GPU.
    shown: Function in JAX from the unknowns of one draw to the parts of
      `Posterior.states`, a dict of name -> array. `None`: the parts are the
      unknowns.
    coords: dict of dimension -> its labels, for ArviZ.
    dims: dict of name -> names of its dimensions.

  Returns:
    A `Model` for `tfpa.sample_posterior`.

  Raises:
    ImportError: If JAX is not installed.
    ValueError: If an unknown has no floating dtype.
    TypeError: If the density is not a scalar; this is an error of JAX.

  Example:
    import jax.numpy as jnp

    model = tfpa.models.from_jax(
      lambda x: -0.5 * jnp.sum(x['theta'] ** 2), init={'theta': jnp.zeros(3)}
    )
    posterior = tfpa.sample_posterior(model)
  """
  jax = optional.load('jax', _NAME, 'jax')
  gpus = tf.config.list_logical_devices('GPU')
  dtype = tf.as_dtype(dtype or (tf.float32 if gpus else tf.float64))
  leaves, structure = jax.tree.flatten(init)
  _check(leaves, structure)
  order = _order(jax, structure)
  specs = [tf.TensorSpec(np.shape(leaves[i]), dtype) for i in order]

  def unflatten(parts):
    of_jax = dict(zip(order, parts))
    return jax.tree.unflatten(structure, [of_jax[i] for i in sorted(order)])

  def of_leaves(*parts):
    return log_prob(unflatten(parts))

  places = tuple(range(len(order)))
  if vectorized:

    def total(*leaves):
      values = of_leaves(*leaves)
      return values.sum(), values

    with_gradient = jax.value_and_grad(total, places, has_aux=True)

    def both(*leaves):
      (_, values), gradients = with_gradient(*leaves)
      return values, gradients

  else:
    both = jax.vmap(jax.value_and_grad(of_leaves, places))
  log_prob_fn, in_python = _computed(jax, both, specs, dtype, bool(gpus))
  return model.Model(
    log_prob_fn,
    unflatten(specs),
    bijectors,
    _shown(jax, shown, dtype),
    in_python,
    dict(coords or {}),
    dict(dims or {}),
  )


def _computed(jax, both, specs, dtype, is_on_gpu):
  """Returns `log_prob_fn` and `in_python` of a `Model`.

  `both` takes leaves [n, event...] in the order of `tf.nest.flatten`, and
  returns values and gradients. The `tf.TensorSpec`s of the leaves lack the
  axis n.
  """
  jax2tf = optional.load('jax.experimental.jax2tf', _NAME, 'jax')
  jitted = jax.jit(both)

  def on_the_host(*parts):
    with _precision(jax, dtype):
      return jitted(*parts)

  converted = jax2tf.convert(
    both,
    with_gradient=False,
    native_serialization_platforms=('cuda',) if is_on_gpu else ('cpu',),
  )
  with _precision(jax, dtype):
    rows = [
      jax.ShapeDtypeStruct((2, *spec.shape), dtype.as_numpy_dtype)
      for spec in specs
    ]
    lowered = jitted.lower(*rows).as_text()
  calls = set(re.findall(r'custom_call @(\w+)', lowered)) - _KNOWN_CALLS

  @custom_gradient.custom_gradient
  def compiled(*parts):
    with _precision(jax, dtype):
      value, gradients = converted(*parts)
    value = tf.cast(value, dtype)
    gradients = [tf.cast(x, dtype) for x in gradients]
    return value, lambda upstream: model.scaled(upstream, gradients)

  function = model.on_the_host(on_the_host) if calls else compiled

  def log_prob(*args, **kwargs):
    return function(*tf.nest.flatten((args, kwargs)))

  return log_prob, on_the_host if calls else None


def _shown(jax, shown, dtype):
  """Returns `shown` as a function of arrays [n, event...], or `None`."""
  if shown is None:
    return None
  jitted = jax.jit(jax.vmap(shown))

  def of_draws(unknowns):
    with _precision(jax, dtype):
      return {name: np.asarray(x) for name, x in jitted(unknowns).items()}

  return of_draws


def _precision(jax, dtype):
  """Returns a context in which JAX computes in float64, or in float32."""
  if hasattr(jax, 'enable_x64'):
    return jax.enable_x64(dtype == tf.float64)
  return jax.experimental.enable_x64(dtype == tf.float64)


def _order(jax, structure):
  """Returns the indices of JAX's leaves in the order of `tf.nest.flatten`.

  The orders differ: JAX keeps the order of an `OrderedDict`, and `tf.nest`
  sorts it.
  """
  indices = list(range(structure.num_leaves))
  order = tf.nest.flatten(jax.tree.unflatten(structure, indices))
  if len(order) != len(indices) or not all(isinstance(i, int) for i in order):
    raise ValueError(
      '`init` must be a structure of dicts, lists and tuples of arrays, '
      f'without `None` and classes of your own, but got {structure}.'
    )
  return order


def _check(leaves, structure):
  if not leaves:
    raise ValueError(
      "`init` has no unknowns. Write for example `{'theta': jnp.zeros(3)}`."
    )
  for leaf in leaves:
    kind = np.dtype(getattr(leaf, 'dtype', type(leaf)))
    if kind.kind != 'f' and kind.name != 'bfloat16':
      raise ValueError(
        f'`init` has an unknown of {kind.name}, but gradients need continuous '
        f'unknowns: write floats. Its structure is {structure}. Sum a discrete '
        'unknown out of the density.'
      )
