"""One structure for each part of the state, so that C is block diagonal."""

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import shown
from tfp_adaptive.core.tfp_private import prefer_static as ps
from tfp_adaptive.preconditioners.cholesky import cholesky
from tfp_adaptive.preconditioners.factor_operator import FactorOperator


@shown.remembers_call
def per_part(preconditioners, init_scale=None):
  """Builds a block-diagonal factor, one structure for every part of the state.

  The blocks are in the order of `tf.nest.flatten` (dicts by sorted key). Parts
  are not coupled. Params are the tuple of the blocks' params. The moves of the
  blocks are independent of each other.

  Args:
    preconditioners: One `interfaces.Preconditioner` per part. An `init_scale`
      of a block multiplies the common first scale.
    init_scale: Common first scale: a positive float or a function of the event
      size. By default the adaptation finds one. If all blocks have an
      `init_scale`, the default is 1.

  Returns:
    An `interfaces.Preconditioner` whose `init` takes the list of the sizes of
    the parts instead of the event size.

  Raises:
    ValueError: If there is no block, if a block can only be fitted to pairs
      (`low_rank`), or if `init` gets another number of sizes.
    TypeError: If a block is no `interfaces.Preconditioner`.

  Example:
    scale = tfp.distributions.Normal(0.0, 1.0)
    path = tfp.distributions.Sample(scale, 100)
    target = tfp.distributions.JointDistributionSequential([scale, path])
    factor = tfpa.preconditioners.per_part(
      [tfpa.preconditioners.diagonal(), tfpa.preconditioners.tridiagonal()]
    )
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob, 1000, preconditioner=factor
    )
  """
  blocks = tuple(preconditioners)
  _check(blocks)
  if init_scale is None and all(b.init_scale is not None for b in blocks):
    init_scale = 1.0

  def init(part_sizes, dtype, scale):
    _check_sizes(part_sizes, len(blocks))
    return tuple(
      block.init(size, dtype, scale * _own_scale(block, size))
      for block, size in zip(blocks, part_sizes)
    )

  def each(name, *structures):
    return tuple(
      getattr(block, name)(*arguments)
      for block, *arguments in zip(blocks, *structures)
    )

  def outer(params, left, right, push):
    sizes = _sizes(blocks, params)
    pushed = lambda i: lambda: tf.split(push(), sizes, axis=-1)[i]
    return each(
      'outer',
      params,
      tf.split(left, sizes, axis=-1),
      tf.split(right, sizes, axis=-1),
      [pushed(i) for i in range(len(blocks))],
    )

  return interfaces.Preconditioner(
    name='per_part',
    init=init,
    operator=lambda params: _operator(each('operator', params)),
    outer=outer,
    log_det_gradient=lambda params: each('log_det_gradient', params),
    slope=lambda params, grads: tf.add_n(each('slope', params, grads)),
    move=lambda params, tangent: each('move', params, tangent),
    rescale=lambda params, by: each('rescale', params, [by] * len(blocks)),
    project=lambda params: each('project', params),
    init_scale=init_scale,
    takes_part_sizes=True,
  )


def _operator(operators):
  """Returns the block-diagonal operator."""
  sizes = [_size(operator) for operator in operators]

  def on_blocks(function, rows):
    return tf.concat(
      [
        function(operator, part)
        for operator, part in zip(operators, tf.split(rows, sizes, axis=-1))
      ],
      axis=-1,
    )

  return FactorOperator(
    ps.reduce_sum(ps.stack(sizes)),
    operators[0].dtype,
    apply=lambda rows, adjoint: on_blocks(
      lambda operator, part: scale_factor.apply(operator, part, adjoint), rows
    ),
    unapply=lambda rows, adjoint: on_blocks(
      lambda operator, part: scale_factor.unapply(operator, part, adjoint), rows
    ),
    log_abs_det=lambda: tf.add_n(
      [operator.log_abs_determinant() for operator in operators]
    ),
    name='per_part',
  )


def _sizes(blocks, params):
  return [_size(block.operator(part)) for block, part in zip(blocks, params)]


def _size(operator):
  """Returns d of an operator, a Python int if it is static."""
  static = tf.compat.dimension_value(operator.domain_dimension)
  return operator.domain_dimension_tensor() if static is None else static


def _own_scale(block, size):
  if block.init_scale is None:
    return 1.0
  return (
    block.init_scale(size) if callable(block.init_scale) else (block.init_scale)
  )


def as_preconditioner(given, init_scale=None):
  """Returns a preconditioner: `per_part` for a list, and dense for `None`."""
  if given is None:
    return cholesky(init_scale)
  is_part = isinstance(given, interfaces.Preconditioner)
  if isinstance(given, (list, tuple)) and not is_part:
    return per_part(given)
  return given


def _check(blocks):
  if not blocks:
    raise ValueError('`per_part` needs one preconditioner per part, got none.')
  for block in blocks:
    if not isinstance(block, interfaces.Preconditioner):
      raise TypeError(
        'Each of `preconditioners` must be an `interfaces.Preconditioner`, but '
        f'got {block!r}. Write for example '
        '`[tfpa.preconditioners.diagonal(), tfpa.preconditioners.cholesky()]`.'
      )
    scale_factor.check_moves(block, '`per_part`')


def _check_sizes(part_sizes, num_blocks):
  if not isinstance(part_sizes, (list, tuple)) or (
    len(part_sizes) != num_blocks
  ):
    raise ValueError(
      f'There are {num_blocks} preconditioners, one per part of the state, but '
      f'the sizes of the parts are {part_sizes!r}. Pass a state of '
      f'{num_blocks} parts (a list of Tensors), or one preconditioner for all '
      'of it.'
    )
