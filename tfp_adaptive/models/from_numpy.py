"""`from_numpy`: makes a model of a function in Python, C++ or Rust."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfp_adaptive.models import model


def from_numpy(
  value_and_gradient: Callable[[np.ndarray], tuple[Any, Any]],
  init: Mapping[str, int | Sequence[int]],
  bijectors: Mapping[str, Any] | None = None,
  *,
  vectorized: bool = False,
  failures: tuple[type[Exception], ...] = (ArithmeticError,),
  shown: Callable[[np.ndarray], Mapping[str, Any]] | None = None,
  coords: Mapping[str, Sequence] | None = None,
  dims: Mapping[str, Sequence[str]] | None = None,
) -> model.Model:
  """Makes a model of a function that computes outside of TensorFlow.

  The function may call C++, Rust or a Stan model compiled by BridgeStan. Steps
  run without XLA. A gradient costs about 0.3 ms in addition to the function's
  own time.

  Args:
    value_and_gradient: Function of a float64 vector [d] that returns a pair:
      the log density (a float) and its gradient [d]. The vector has all
      unknowns in the order of `init`.
    init: dict of the unknowns: name -> shape, () for a scalar.
    bijectors: dict of name -> `tfb.Bijector` onto the support of an unknown.
      Other unknowns are unbounded. The function gets values in the supports,
      and its density is with respect to these values.
    vectorized: Whether the function takes rows [n, d] and returns [n] and
      [n, d].
    failures: Exceptions of the function at points without a density. Proposals
      to such points are rejected. Other exceptions end the run. A vectorized
      function must return NaN at such points instead.
    shown: Function from a vector to the parts of `Posterior.states`, a dict of
      name -> array, for example on the model's own scale. `None`: the parts are
      the unknowns.
    coords: dict of dimension -> its labels, for ArviZ.
    dims: dict of name -> names of its dimensions.

  Returns:
    A `Model` for `tfpa.sample_posterior`.

  Raises:
    ValueError: If a name or a shape is not allowed. If the function returns
      other shapes, `sample_posterior` raises it.

  Example:
    model = tfpa.models.from_numpy(
      lambda x: (-0.5 * np.sum(x**2), -x), init=dict(theta=3)
    )
    posterior = tfpa.sample_posterior(model)
  """
  shapes = {name: _shape(name, given) for name, given in dict(init).items()}
  if not shapes:
    raise ValueError(
      '`init` has no unknowns. Write for example `dict(theta=3)`.'
    )
  sizes = [int(np.prod(shape)) for shape in shapes.values()]
  ends = np.cumsum(sizes)
  size = int(ends[-1])

  def rows_of(parts):
    return np.concatenate(
      [np.reshape(parts[n], [-1, k]) for n, k in zip(shapes, sizes)], axis=1
    )

  def both(rows):
    if vectorized:
      values, gradients = value_and_gradient(rows)
      return np.reshape(values, [len(rows)]), np.reshape(gradients, rows.shape)
    values, gradients = np.full([len(rows)], np.nan), np.zeros(rows.shape)
    for i, row in enumerate(rows):
      try:
        value, gradient = value_and_gradient(row.copy())
      except failures:
        continue
      values[i] = float(np.reshape(value, []))
      gradients[i] = _checked(gradient, size)
    return values, gradients

  # TFP orders a dict by its sorted names.
  order = sorted(shapes)

  def on_parts(*parts):
    values, gradients = both(rows_of(dict(zip(order, parts))))
    pieces = dict(zip(shapes, np.split(gradients, ends[:-1], axis=1)))
    return values, [np.reshape(pieces[n], [-1, *shapes[n]]) for n in order]

  log_prob = model.on_the_host(on_parts)

  def of_rows(parts):
    rows = rows_of(parts)
    found = [dict(shown(row)) for row in rows]
    return {n: np.stack([np.asarray(x[n]) for x in found]) for n in found[0]}

  return model.Model(
    lambda **parts: log_prob(*(parts[name] for name in order)),
    {n: tf.TensorSpec(shape, tf.float64) for n, shape in shapes.items()},
    bijectors,
    of_rows if shown else None,
    on_parts,
    dict(coords or {}),
    dict(dims or {}),
  )


def _shape(name, given):
  """Returns a shape as a tuple, or refuses it."""
  shape = (given,) if isinstance(given, (int, np.integer)) else given
  is_shape = isinstance(shape, (tuple, list)) and all(
    isinstance(n, (int, np.integer)) and n > 0 for n in shape
  )
  if not is_shape or not isinstance(name, str):
    raise ValueError(
      f'`init` must be a dict of name -> shape, but {name!r} has {given!r}. '
      'Write `dict(theta=3)` for a vector, `dict(tau=())` for one number.'
    )
  return tuple(map(int, shape))


def _checked(gradient, size):
  gradient = np.asarray(gradient, np.float64)
  if gradient.shape != (size,):
    raise ValueError(
      f'`value_and_gradient` returned a gradient of shape {gradient.shape}, '
      f'but the unknowns of `init` are {size} numbers, ({size},).'
    )
  return gradient
