"""Converts states of any structure to [chains..., event_size], and back.

A state is a Tensor or a structure of Tensors: list, tuple, namedtuple, dict.
Its leading dimensions, as many as `target_log_prob` has, index chains.
"""

import tensorflow as tf

from tfp_adaptive.core import structures
from tfp_adaptive.core import target_call
from tfp_adaptive.core.tfp_private import prefer_static as ps


def as_tensors(init_state):
  """Returns a start as Tensors; refuses parts that are not floating."""
  state = tf.nest.map_structure(tf.convert_to_tensor, init_state)
  dtypes = {part.dtype for part in tf.nest.flatten(state)}
  wrong = sorted(d.name for d in dtypes if not d.is_floating)
  if wrong:
    raise TypeError(
      f'The state must be of floating numbers, but has parts of {wrong}. Write '
      "for example `tf.cast(start, 'float32')`."
    )
  half = sorted(d.name for d in dtypes if d.size < 4)
  if half:
    raise TypeError(
      f'The state must be float32 or float64, but has parts of {half}, which '
      'round log densities by more than a step changes them. Write for example '
      "`tf.cast(start, 'float32')`, and compute the density in the same dtype."
    )
  return state


def names(structure, prefix=''):
  """Returns the names of all parts, in the order of `tf.nest.flatten`.

  Names are the keys of dicts and the fields of namedtuples, joined as `a.b` for
  nested parts. Parts of a sequence are x0, x1, ..., and a single Tensor is x.
  """
  if structures.is_namedtuple(structure):
    items = list(structure._asdict().items())
  elif isinstance(structure, dict):
    items = sorted(structure.items())
  elif isinstance(structure, (list, tuple)):
    items = [(f'x{i}', part) for i, part in enumerate(structure)]
  else:
    return (prefix or 'x',)
  found = ()
  for key, part in items:
    found += names(part, f'{prefix}.{key}' if prefix else str(key))
  return found


def flatten(state, num_chain_dims):
  """Concatenates all parts to [chains..., event_size]."""
  parts = [
    tf.reshape(part, ps.concat([ps.shape(part)[:num_chain_dims], [-1]], axis=0))
    if _event_rank(part, num_chain_dims) != 1
    else part
    for part in tf.nest.flatten(state)
  ]
  dtypes = {part.dtype.base_dtype for part in parts}
  if len(dtypes) > 1:
    raise TypeError(
      'All parts of the state must have one dtype, but got '
      f'{sorted(d.name for d in dtypes)}. Cast them before sampling, for '
      "example with `tf.nest.map_structure(lambda x: tf.cast(x, 'float64'), "
      'state)`.'
    )
  return parts[0] if len(parts) == 1 else tf.concat(parts, axis=-1)


def as_rows(flat):
  """Returns [chains..., event_size] as [num_chains, event_size]."""
  return tf.reshape(flat, ps.stack([-1, ps.shape(flat)[-1]]))


def event_size(flat):
  """Returns the size of rows [chains..., event_size], an int if it is static.

  The size may be static even if the number of chains is not.
  """
  size = flat.shape[-1]
  return ps.shape(flat)[-1] if size is None else size


def of_flat(target_log_prob_fn, state, num_chain_dims):
  """Returns the target and its gradient as a function of flat positions.

  `state` is any state of the chains, for its structure and its shapes.
  """

  def value_and_gradient_of_flat(flat):
    log_prob, grads = value_and_gradient(
      target_log_prob_fn, unflatten_like(flat, state, num_chain_dims)
    )
    return log_prob, flatten(grads, num_chain_dims)

  return value_and_gradient_of_flat


def unflatten_like(flat, state, num_chain_dims):
  """Splits [chains..., event_size] into the structure and shapes of `state`."""
  parts = tf.nest.flatten(state)
  if len(parts) == 1:
    rows = [flat]
  else:
    sizes = part_sizes(state, num_chain_dims)
    rows = tf.split(flat, sizes, axis=-1)
  shaped = [
    row
    if _event_rank(part, num_chain_dims) == 1
    else tf.reshape(row, ps.shape(part))
    for row, part in zip(rows, parts)
  ]
  for row, part in zip(shaped, parts):
    row.set_shape(part.shape)
  return tf.nest.pack_sequence_as(state, shaped)


def part_sizes(state, num_chain_dims):
  """Returns the event size of every part, in the order of `flatten`."""
  return [
    ps.reduce_prod(ps.shape(part)[num_chain_dims:])
    for part in tf.nest.flatten(state)
  ]


def num_chains(target_log_prob):
  """Returns the number of chains, a Python int if it is static."""
  static = target_log_prob.shape.num_elements()
  return static if static is not None else tf.size(target_log_prob)


def value(target_log_prob_fn, state, shape=None):
  """Evaluates the target at `state`.

  The shape of an earlier value is set if the value has no static shape, which
  happens with Python code in a graph.
  """
  return _call(target_log_prob_fn, fresh(state), shape)


def fresh(state):
  """Returns the state in new Tensors.

  TFP's bijectors cache the values that they compute from a Tensor. The log_prob
  of a multivariate normal uses bijectors. A cached value may lie outside the
  current gradient tape or in another branch of a `tf.cond`.
  """
  return tf.nest.map_structure(tf.identity, state)


def _call(target_log_prob_fn, state, shape=None):
  log_prob = tf.convert_to_tensor(
    target_call.call(target_log_prob_fn, state), name='target_log_prob'
  )
  if shape is not None:
    return _with_shape(log_prob, shape)
  ranks = [part.shape.rank for part in tf.nest.flatten(state)]
  if log_prob.shape.rank is None and None not in ranks:
    raise ValueError(
      '`target_log_prob_fn` returned a Tensor whose shape is not known while '
      'the graph is built, as Python code does (`tf.py_function`). Return '
      '`tf.ensure_shape(log_prob, x.shape[:-1])`, one number per chain.'
    )
  return log_prob


def _with_shape(tensor, shape):
  is_known = tensor.shape.is_fully_defined()
  return tensor if is_known else tf.ensure_shape(tensor, shape)


def value_and_gradient(target_log_prob_fn, state):
  """Evaluates the target and its gradient, in the structure of `state`."""
  parts = tf.nest.flatten(fresh(state))
  with tf.GradientTape(watch_accessed_variables=False) as tape:
    tape.watch(parts)
    log_prob = _call(target_log_prob_fn, tf.nest.pack_sequence_as(state, parts))
  grads = tape.gradient(log_prob, parts)
  missing = [
    i
    for i, (grad, part) in enumerate(zip(grads, parts))
    if grad is None or not grad.shape.is_compatible_with(part.shape)
  ]
  if missing:
    raise ValueError(
      f'`target_log_prob_fn` has no gradient with respect to part(s) {missing} '
      f'of a state with {len(parts)} part(s). Use differentiable TensorFlow '
      'ops of every part (no numpy, no tf.stop_gradient, no integer casts), or '
      'a kernel without gradients: `tfpa.adaptive_metropolis`.'
    )
  grads = [_with_shape(grad, part.shape) for grad, part in zip(grads, parts)]
  return log_prob, tf.nest.pack_sequence_as(state, grads)


def _event_rank(part, num_chain_dims):
  rank = part.shape.rank
  return None if rank is None else rank - num_chain_dims
