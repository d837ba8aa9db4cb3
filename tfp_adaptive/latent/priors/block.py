"""Independent fields in one state: copies of one prior, or several priors."""

import math

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps


@shown.remembers_call
def block(prior, num_blocks=None):
  """Builds the prior of independent fields.

  Use copies of one prior for multi-class classification, with one field for
  every class. Copies share one decomposition and their matrix products. Use a
  list for several fields in one state, such as a trend and a seasonal term,
  whose sum enters the likelihood.

  Args:
    prior: An `interfaces.GaussianPrior`, or a list of them.
    num_blocks: Number of copies of one prior, an int; None for a list.

  Returns:
    An `interfaces.GaussianPrior`. For copies, states are [chains...,
    num_blocks, *prior.event_shape], and `restrict` applies to every block. For
    a list, flattened states are concatenated, [chains..., d1 + d2 + ...], and
    so are their restricted parts. Split them with `tf.split`. If no prior has a
    `restrict`, a list of states [chains..., *event_shape_i] works too.

  Raises:
    ValueError: If there is neither one prior and a positive int, nor a list of
      priors of one dtype.

  References:
    Williams and Barber (1998), Bayesian classification with Gaussian processes.

  Example:
    one = tfpa.gaussian_priors.random_walk(0.1, 100, initial_scale=1.0)
    prior = tfpa.gaussian_priors.block(one, 3)
    draws = tfpa.gaussian_priors.sample(prior, [4], seed=(0, 1))
    print(draws.shape)  # (4, 3, 100)
  """
  if isinstance(prior, interfaces.GaussianPrior):
    if not isinstance(num_blocks, int) or num_blocks < 1:
      raise ValueError(
        f'`num_blocks` must be a positive int, but got {num_blocks!r}. Write '
        '`block(prior, num_blocks=3)`, or `block([prior_1, prior_2])`.'
      )
    return _copies(prior, num_blocks)
  priors = list(prior)
  _check_list(priors, num_blocks)
  return _side_by_side(priors)


def _copies(prior, num_blocks):
  """Returns the prior of K independent copies."""
  size = math.prod(prior.event_shape)

  def lift(function, *rows):
    # The blocks go first, so that params with chain dimensions broadcast.
    blocks = function(*(_blocks_first(v, num_blocks, size) for v in rows))
    return _blocks_last(blocks, num_blocks, size)

  def total(log_prob, rows):
    blocks = _blocks_first(rows, num_blocks, size)
    return tf.reduce_sum(log_prob(blocks), axis=0)

  return interfaces.GaussianPrior(
    name=f'block of {num_blocks} {prior.name}',
    event_shape=(num_blocks, *prior.event_shape),
    params=prior.params,
    to_coordinates=lambda p, x: lift(lambda v: prior.to_coordinates(p, v), x),
    from_coordinates=lambda p, s: lift(
      lambda v: prior.from_coordinates(p, v), s
    ),
    pull=lambda p, g: lift(lambda v: prior.pull(p, v), g),
    covariance=lambda p: _lift_functions(prior.covariance(p), lift, total),
    smoother=lambda p, variance: _lift_functions(
      prior.smoother(p, variance), lift, total
    ),
    # `restrict` works on trailing dimensions. K counts as a chain dimension.
    restrict=prior.restrict,
    is_singular=prior.is_singular,
  )


def _blocks_first(rows, num_blocks, size):
  """Returns [K, chains..., d] of [chains..., K d]."""
  blocks = tf.reshape(
    rows, ps.concat([ps.shape(rows)[:-1], [num_blocks, size]], axis=0)
  )
  rank = blocks.shape.rank
  return tf.transpose(blocks, [rank - 2, *range(rank - 2), rank - 1])


def _blocks_last(blocks, num_blocks, size):
  """Returns [chains..., K d] of [K, chains..., d]."""
  rank = blocks.shape.rank
  rows = tf.transpose(blocks, [*range(1, rank - 1), 0, rank - 1])
  return tf.reshape(
    rows, ps.concat([ps.shape(rows)[:-2], [num_blocks * size]], axis=0)
  )


def _side_by_side(priors):
  """Returns the prior of several fields in one state."""
  sizes = [math.prod(prior.event_shape) for prior in priors]

  def each(functions, *rows):
    split = zip(*(tf.split(v, sizes, axis=-1) for v in rows))
    return tf.concat([f(*parts) for f, parts in zip(functions, split)], axis=-1)

  def by_prior(name):
    def function(params, rows):
      functions = [
        lambda v, p=p, prior=prior: getattr(prior, name)(p, v)
        for p, prior in zip(params, priors)
      ]
      return each(functions, rows)

    return function

  def total(log_probs, rows):
    parts = tf.split(rows, sizes, axis=-1)
    return sum(log_prob(v) for log_prob, v in zip(log_probs, parts))

  def restrict(state):
    parts = tf.split(state, sizes, axis=-1)
    seen = [_restricted(prior, v) for prior, v in zip(priors, parts)]
    return tf.concat(seen, axis=-1)

  return interfaces.GaussianPrior(
    name=f'block of {", ".join(prior.name for prior in priors)}',
    event_shape=(sum(sizes),),
    params=tuple(prior.params for prior in priors),
    to_coordinates=by_prior('to_coordinates'),
    from_coordinates=by_prior('from_coordinates'),
    pull=by_prior('pull'),
    covariance=lambda params: _join_functions(
      [prior.covariance(p) for p, prior in zip(params, priors)], each, total
    ),
    smoother=lambda params, variance: _join_functions(
      [prior.smoother(p, variance) for p, prior in zip(params, priors)],
      each,
      total,
    ),
    restrict=restrict if any(prior.restrict for prior in priors) else None,
    is_singular=any(prior.is_singular for prior in priors),
  )


def _restricted(prior, rows):
  """Returns `prior.restrict` of rows, as rows."""
  if prior.restrict is None:
    return rows
  lead = ps.shape(rows)[:-1]
  state = tf.reshape(rows, ps.concat([lead, list(prior.event_shape)], axis=0))
  return tf.reshape(prior.restrict(state), ps.concat([lead, [-1]], axis=0))


def _lift_functions(functions, lift, total):
  """Returns a Covariance or a Smoother of all copies."""

  def lifted(name, function):
    if name.startswith('log_'):
      return lambda rows: total(function, rows)
    return lambda *rows: lift(function, *rows)

  return type(functions)(
    **{name: f and lifted(name, f) for name, f in functions._asdict().items()}
  )


def _join_functions(parts, each, total):
  """Returns a Covariance or a Smoother of several priors."""

  def joined(name):
    # `log_prob_if_invertible` is None if `log_prob` does the same.
    functions = [getattr(part, name) or part.log_prob for part in parts]
    if name.startswith('log_'):
      return lambda rows: total(functions, rows)
    return lambda *rows: each(functions, *rows)

  return type(parts[0])(**{name: joined(name) for name in parts[0]._fields})


def _check_list(priors, num_blocks):
  if num_blocks is not None:
    raise ValueError(
      f'`num_blocks` counts copies of one prior, but got {num_blocks!r} with a '
      'list of priors. Leave it out.'
    )
  wrong = [p for p in priors if not isinstance(p, interfaces.GaussianPrior)]
  if wrong or not priors:
    raise ValueError(
      '`prior` must be an `interfaces.GaussianPrior` or a list of at least one '
      f'of them, but got {[type(p).__name__ for p in priors]}.'
    )
  dtypes = {tf.nest.flatten(prior.params)[0].dtype.name for prior in priors}
  if len(dtypes) > 1:
    raise ValueError(
      f'All priors of a block must have one dtype, but have {sorted(dtypes)}.'
    )
