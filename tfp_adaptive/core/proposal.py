"""Base class of uncalibrated proposals: constructor, starts, sharding."""

import inspect
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import scale_factor
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import stochastic_target
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.tfp_private import prefer_static as ps

_SHARD_SALT = 101  # Folded into a step's seed.


class ProposalResults(NamedTuple):
  """Results of an uncalibrated proposal; plain Tensors of constant structure.

  `interfaces.Proposal` explains the fields without a comment.
  """

  target_log_prob: tf.Tensor
  grads_target_log_prob: Any
  log_acceptance_correction: tf.Tensor
  preconditioner_params: Any
  step_size: tf.Tensor  # Multiplies the scale factor; [] or [chains..., 1].
  # Range (fewest, most) from which the number of leapfrog steps is drawn,
  # [2] int32, if the range is learned; else `[]`. A proposal that keeps momenta
  # always has a range, and a third number (`linear.kept_momentum`).
  num_leapfrog_steps: Any
  noise: tf.Tensor
  # What a replay needs from the intermediate steps; `[]` for most proposals.
  trajectory: Any
  seed: tf.Tensor


class UncalibratedProposal(kernel_base.Kernel):
  """Base of the proposals y = x + s C e; a subclass may add a drift."""

  is_calibrated = False
  uses_gradient = False
  num_leapfrog_steps = 1

  def __init__(
    self,
    target_log_prob_fn,
    preconditioner,
    step_size=1.0,
    experimental_shard_axis_names=None,
    name=None,
    target_is_stochastic=None,
  ):
    """Builds the kernel; no Tensor is created here.

    Args:
      target_log_prob_fn: Called as TFP calls targets: `fn(x)`, `fn(*parts)`
        for a list or tuple, `fn(**parts)` for a dict. Returns [chains...].
      preconditioner: An `interfaces.Preconditioner`.
      step_size: Multiplies C; dimensionless; [] or [chains..., 1].
      experimental_shard_axis_names: `None`, or the shard axis of every part
        of the state; all parts must be sharded along the same axes.
      name: Prefix of the names of bootstrap ops.
      target_is_stochastic: Whether the target takes a `seed` and returns an
        estimate; `None` for proposals that take exact targets only.
    """
    _check_parts(target_log_prob_fn, preconditioner)
    arguments.check_positive(step_size, 'step_size', 1.0, is_array=True)
    stochastic_target.check(target_log_prob_fn, target_is_stochastic)
    self._keep(locals())
    taken = inspect.signature(type(self).__init__).parameters
    for name in self._parameters.keys() - taken.keys():
      del self._parameters[name]

  @property
  def target_log_prob_fn(self):
    return self._parameters['target_log_prob_fn']

  @property
  def target_is_stochastic(self):
    return bool(self._parameters.get('target_is_stochastic'))

  @property
  def preconditioner(self):
    return self._parameters['preconditioner']

  @property
  def step_size(self):
    return self._parameters['step_size']

  @property
  def experimental_shard_axis_names(self):
    return self._parameters['experimental_shard_axis_names']

  def experimental_with_shard_axes(self, shard_axis_names):
    return self.copy(experimental_shard_axis_names=shard_axis_names)

  def learned_at(self, results):
    return dict(
      step_size=np.asarray(results.step_size),
      preconditioner=constant(
        self.preconditioner, results.preconditioner_params
      ),
    )

  def operator_at(self, results):
    return self.preconditioner.operator(results.preconditioner_params)

  def scalars_at(self, results):
    operator = self.operator_at(results)
    size = tf.cast(operator.domain_dimension_tensor(), operator.dtype)
    return dict(log_scale=operator.log_abs_determinant() / size)

  def mean_accept_prob(self, mh_results):
    """Returns the acceptance that an adapted step size follows, []."""
    return adaptation_base.mean_accept_prob(mh_results)

  def bootstrap_results(self, init_state):
    """Evaluates the target at `init_state` and initializes the params."""
    with tf.name_scope(f'{self.name}_bootstrap'):
      init_state = state_parts.as_tensors(init_state)
      grads = []
      if self.uses_gradient:
        log_prob, grads = state_parts.value_and_gradient(
          self.target_log_prob_fn, init_state
        )
      else:
        log_prob = self._evaluate(
          init_state, stochastic_target.bootstrap_seed()
        )
      check_log_prob(log_prob, init_state)
      flat = state_parts.flatten(init_state, ps.rank(log_prob))
      return ProposalResults(
        target_log_prob=log_prob,
        grads_target_log_prob=grads,
        log_acceptance_correction=tf.zeros_like(log_prob),
        preconditioner_params=self._init_params(
          flat, state_parts.part_sizes(init_state, ps.rank(log_prob))
        ),
        step_size=tf.convert_to_tensor(self.step_size, dtype=flat.dtype),
        num_leapfrog_steps=self._init_num_steps(),
        noise=tf.zeros_like(flat),
        trajectory=self._init_trajectory(flat),
        seed=tf.zeros([2], tf.int32),
      )

  def _evaluate(self, state, seed, shape=None):
    return stochastic_target.evaluate(
      self.target_log_prob_fn, state, seed, self.target_is_stochastic, shape
    )

  def _init_num_steps(self):
    return []

  def _init_trajectory(self, flat):
    del flat
    return []

  def _init_params(self, flat, part_sizes, preconditioner=None):
    preconditioner = preconditioner or self.preconditioner
    event_size = state_parts.event_size(flat)
    scale = preconditioner.init_scale
    if callable(scale):
      scale = scale(event_size)
    elif scale is not None:
      arguments.check_positive(scale, 'init_scale', 1.0)
    return preconditioner.init(
      part_sizes if preconditioner.takes_part_sizes else event_size,
      flat.dtype,
      tf.constant(1.0 if scale is None else scale, flat.dtype),
    )

  def _factor(self, results):
    """Returns s C as an `interfaces.ScaleFactor`."""
    return scale_factor.scaled(
      scale_factor.at(self.preconditioner, results.preconditioner_params),
      results.step_size,
    )

  def _draw_noise(self, flat, seed):
    """Returns standard normals, [chains..., d]."""
    return random.normal(ps.shape(flat), flat.dtype, self._shard_seed(seed))

  def _shard_seed(self, seed):
    """Returns the seed of draws that differ from shard to shard."""
    for axis in self._shard_axes():
      # Without the salt, a shard's seed could equal another seed of this step.
      seed = random.fold_in(seed, _SHARD_SALT)
      seed = random.fold_in(seed, tfp_private.get_axis_index(axis))
    return seed

  def event_sum(self, rows):
    """Sums over the event dimension, also across shards."""
    total = tf.reduce_sum(rows, axis=-1)
    for axis in self._shard_axes():
      total = tfp_private.psum(total, axis)
    return total

  def _shard_axes(self):
    names = self.experimental_shard_axis_names
    if not names:
      return []
    parts = names if isinstance(names, (list, tuple)) else [names]
    axes = [[p] if isinstance(p, str) else list(p or []) for p in parts]
    if any(a != axes[0] for a in axes):
      raise ValueError(
        'A preconditioner couples all parts of the state, so all must be '
        f'sharded along the same axes, but got {names!r}. Shard every part, or '
        'use one kernel per block of parts.'
      )
    return axes[0]


def constant(part, params):
  """Returns a preconditioner or a transport that starts at given params."""
  params = tf.nest.map_structure(np.asarray, params)

  def init(event_size, dtype, scale):
    del event_size, scale
    return tf.nest.map_structure(
      lambda p: tf.convert_to_tensor(
        p, dtype=dtype if np.issubdtype(p.dtype, np.floating) else None
      ),
      params,
    )

  return part._replace(init=init, init_scale=1.0)


def _check_parts(target_log_prob_fn, preconditioner):
  if not callable(target_log_prob_fn):
    raise TypeError(
      '`target_log_prob_fn` must be callable, but got '
      f'{type(target_log_prob_fn).__name__}. Pass a function of the state that '
      'returns one log density per chain.'
    )
  if not isinstance(
    preconditioner, interfaces.Preconditioner | interfaces.MapParams
  ):
    raise TypeError(
      '`preconditioner` must be an `interfaces.Preconditioner`, but got '
      f'{preconditioner!r}. Write for example '
      '`preconditioner=tfpa.preconditioners.cholesky()` (with parentheses).'
    )


def check_log_prob(log_prob, init_state):
  """Refuses a target of another dtype than the state or of a wrong shape."""
  parts = tf.nest.flatten(init_state)
  dtypes = {part.dtype.base_dtype for part in parts}
  # `state_parts.flatten` refuses parts of several dtypes.
  if len(dtypes) == 1 and dtypes != {log_prob.dtype.base_dtype}:
    raise TypeError(
      f'`target_log_prob_fn` returned {log_prob.dtype.name} for a state of '
      f'{parts[0].dtype.name}; they must be one dtype. Cast one of them, for '
      f"example the start with `tf.cast(start, '{log_prob.dtype.name}')`."
    )
  rank = log_prob.shape.rank
  for part in parts:
    if rank is None or part.shape.rank is None:
      continue
    if rank > part.shape.rank or not part.shape[:rank].is_compatible_with(
      log_prob.shape
    ):
      raise ValueError(
        f'`target_log_prob_fn` returned shape {log_prob.shape}, but a part of '
        f'the state has shape {part.shape}: its leading {rank} dimension(s) '
        'must be the chains. Return one number per chain: sum over the event '
        'dimensions, for example with `tf.reduce_sum(..., axis=-1)` or '
        '`tfd.Independent`.'
      )
