"""The base class of the proposals for latent Gaussian models.

The target is exp f(x) N(x | mean, C), where f is the log-likelihood. A proposal
works in the coordinates s of its prior, and keeps the coordinates of the state
and of the gradient in the results. A step then makes at most two products with
the prior's basis: y from its coordinates, and the coordinates of the gradient.
"""

from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import state_parts
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings
from tfp_adaptive.core.tfp_private import prefer_static as ps

# Factor of delta, a variance; the shortest step has 1/1000 of the length.
_SHORTEST = 1e-6

REFUSAL = (
  'This kernel samples exp(log_likelihood) times a Gaussian prior, and its '
  'proposal is built on that prior: a bijector or a temperature around the '
  'whole density would leave the prior unchanged and sample another '
  'distribution. Put the transformation into `log_likelihood_fn` (a tempered '
  'likelihood '
  '`lambda x: beta * log_likelihood_fn(x)` is fine), and hyperparameters into '
  '`tfpa.latent_gaussian_hyperparameters`.'
)


class LatentResults(NamedTuple):
  """Results of a proposal for latent Gaussian models; plain Tensors."""

  # The log-likelihood f at the proposed state, [chains...], without the prior.
  target_log_prob: tf.Tensor
  # The proposed state in the prior's coordinates, [chains..., d].
  coordinates: tf.Tensor
  # The gradient of f in these coordinates; `[]` without gradients.
  grads_coordinates: Any
  # The log acceptance ratio without the difference of f, [chains...].
  log_acceptance_correction: tf.Tensor
  step_size: tf.Tensor  # delta, a variance in squared units of the state, [].
  seed: tf.Tensor  # [2] int32.

  @property
  def grads_target_log_prob(self):
    # Replica exchange reads this property to swap states.
    raise ValueError(REFUSAL)


class Point(NamedTuple):
  """Rows of states and of gradients of f, in the prior's coordinates."""

  state: tf.Tensor  # [chains..., d].
  grads: Any  # [chains..., d]; `[]` without gradients.


class UncalibratedLatentProposal(kernel_base.Kernel):
  """Base of proposals that draw y in the prior's coordinates.

  A proposal implements `_propose(functions, delta, current, seed)`, which
  returns the coordinates of y and `drawn`, other draws. `_correction(functions,
  delta, drawn, current, proposed)` returns `log_acceptance_correction`.
  `functions` is the result of `_functions(prior, variance)`.
  """

  is_calibrated = False
  uses_gradient = True
  has_prior_apart = True

  def __init__(self, log_likelihood_fn, prior, delta=0.1, name=None):
    """Builds the kernel; no Tensor is created here.

    Args:
      log_likelihood_fn: f, called as TFP calls targets; returns [chains...].
      prior: An `interfaces.GaussianPrior`, from `tfpa.gaussian_priors`.
      delta: [], a variance in squared units of the state.
      name: Prefix of the names of bootstrap ops.
    """
    _check_arguments(log_likelihood_fn, prior)
    arguments.check_positive(delta, 'delta', 0.1, is_array=True)
    self._parameters = _Parameters(
      log_likelihood_fn=log_likelihood_fn,
      prior=prior,
      delta=delta,
      name=name,
    )

  @property
  def log_likelihood_fn(self):
    return self._parameters['log_likelihood_fn']

  @property
  def prior(self):
    return self._parameters['prior']

  @property
  def delta(self):
    return self._parameters['delta']

  def learned_at(self, results):
    return dict(delta=np.asarray(results.step_size))

  def scalars_at(self, results):
    return dict(step_size=results.step_size)

  def cost(self, adapting):
    del adapting
    gradient = int(self.uses_gradient)
    return interfaces.Cost(
      target=1, gradient=gradient, matrix_product=1 + gradient
    )

  def bootstrap_results(self, init_state):
    with tf.name_scope(f'{self.name}_bootstrap'):
      init_state = state_parts.as_tensors(init_state)
      log_likelihood, grads = self._evaluate(init_state)
      num_chain_dims = ps.rank(log_likelihood)
      flat = state_parts.flatten(init_state, num_chain_dims)
      _check_state(flat, self.prior)
      delta = tf.convert_to_tensor(self.delta, dtype=flat.dtype)
      _check_delta(delta)
      return LatentResults(
        target_log_prob=log_likelihood,
        coordinates=self.prior.to_coordinates(self.prior.params, flat),
        grads_coordinates=grads,
        log_acceptance_correction=tf.zeros_like(log_likelihood),
        step_size=delta,
        seed=tf.zeros([2], tf.int32),
      )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Draws y; the results carry f, its gradient and the correction."""
    previous = previous_kernel_results
    seed = random.sanitize(seed)
    current = Point(previous.coordinates, previous.grads_coordinates)
    functions = self._functions(self.prior, 0.5 * previous.step_size)

    # 1. Draw y in the prior's coordinates.
    coordinates, drawn = self._propose(
      functions, previous.step_size, current, seed
    )

    # 2. Evaluate the likelihood where the proposal landed.
    proposed_state, log_likelihood, grads = self.evaluate_at(
      coordinates, current_state
    )

    # 3. Correct for the asymmetry of the proposal.
    correction = self._correction(
      functions,
      previous.step_size,
      drawn,
      current,
      Point(coordinates, grads),
    )
    return proposed_state, previous._replace(
      target_log_prob=log_likelihood,
      coordinates=coordinates,
      grads_coordinates=grads,
      log_acceptance_correction=correction,
      seed=seed,
    )

  def evaluate_at(self, coordinates, like):
    """Returns a state in the structure of `like`, f and its gradient.

    `coordinates` are rows in the prior's coordinates, [chains..., d]. The
    gradient has the same coordinates, or is `[]` if none is used.
    """
    flat = self.prior.from_coordinates(self.prior.params, coordinates)
    state = state_parts.unflatten_like(flat, like, ps.rank(flat) - 1)
    return (state, *self._evaluate(state, coordinates.shape[:-1]))

  def _evaluate(self, state, shape=None):
    """Returns f, [chains...], and its gradient in the prior's coordinates.

    `shape` is the shape of f, if known; f in Python code has no static shape.
    """
    function = self.log_likelihood_fn
    restrict = self.prior.restrict
    if restrict is not None:
      function = lambda x: self.log_likelihood_fn(restrict(x))
    if not self.uses_gradient:
      return state_parts.value(function, state, shape), []
    log_likelihood, grads = state_parts.value_and_gradient(function, state)
    flat = state_parts.flatten(grads, ps.rank(log_likelihood))
    _check_state(flat, self.prior)
    return log_likelihood, self.prior.pull(self.prior.params, flat)

  def _functions(self, prior, variance):
    """Returns the smoother, for `_propose` and `_correction`."""
    return prior.smoother(prior.params, variance)

  def _propose(self, functions, delta, current, seed):
    raise NotImplementedError

  def _correction(self, functions, delta, drawn, current, proposed):
    raise NotImplementedError


def adapted(
  proposal, num_adaptation_steps, target_accept_prob, short_step_share
):
  """Puts Metropolis-Hastings and the adaptation of delta around a proposal.

  DualAveragingStepSizeAdaptation   TFP's kernel, learns delta
   └ ShortSteps                     some short steps while delta is learned
      └ MetropolisHastings          accepts or rejects
         └ Uncalibrated...          proposes, in the prior's coordinates
  """
  kernel = with_short_steps(
    MetropolisHastings(proposal), num_adaptation_steps, short_step_share
  )
  return step_sizes.tuned(kernel, num_adaptation_steps, target_accept_prob)


def with_short_steps(kernel, num_adaptation_steps, share):
  """Returns the kernel with some much shorter steps while delta is tuned."""
  return short_steps.ShortSteps(
    kernel, num_adaptation_steps, share, _SHORTEST, while_adapting=True
  )


def dot(left, right):
  """Returns the inner product of rows, [chains...]."""
  return tf.reduce_sum(left * right, axis=-1)


def noise_like(rows, seed):
  """Draws standard normals in the shape of rows.

  A loop of one iteration makes XLA store the normals. Without the loop, XLA on
  CPU fuses them with the product by the prior's scales, and computes one number
  at a time, three times slower. A single row needs no loop.
  """
  if rows.shape.num_elements() == rows.shape[-1]:
    return random.normal(ps.shape(rows), rows.dtype, seed)
  is_always = tf.bitwise.bitwise_and(seed[0], 0x7FFFFFFF) >= 0

  def draw(rows):
    noise = random.normal(ps.shape(rows), rows.dtype, seed)
    return (tf.ensure_shape(noise, rows.shape),)

  (noise,) = control_flow.apply_if(is_always, draw, tf.zeros_like(rows))
  return noise


class _Parameters(dict):
  """Constructor arguments; says why there is no `target_log_prob_fn`."""

  def __contains__(self, key):
    if key == 'target_log_prob_fn':
      raise ValueError(REFUSAL)
    return super().__contains__(key)


def _check_arguments(log_likelihood_fn, prior):
  if not callable(log_likelihood_fn):
    raise TypeError(
      '`log_likelihood_fn` must be callable, but got '
      f'{type(log_likelihood_fn).__name__}. Pass a function of the latent '
      'field that returns one log-likelihood per chain, without the prior.'
    )
  if not isinstance(prior, interfaces.GaussianPrior):
    raise TypeError(
      '`prior` must be an `interfaces.GaussianPrior`, but got '
      f'{type(prior).__name__}. Write for example '
      '`prior=tfpa.gaussian_priors.spectral(covariance)`.'
    )


def _check_state(flat, prior):
  if prior.event_shape is None:
    return
  size = 1
  for n in prior.event_shape:
    size *= n
  if flat.shape[-1] != size:
    raise ValueError(
      f'The state has {flat.shape[-1]} coordinates per chain, but the prior '
      f'{prior.name!r} has event shape {prior.event_shape}. The state must be '
      f'[chains..., {", ".join(str(n) for n in prior.event_shape)}], and '
      '`log_likelihood_fn` return one number per chain.'
    )
  dtype = tf.nest.flatten(prior.params)[0].dtype
  if flat.dtype != dtype:
    raise TypeError(
      f'The state is {flat.dtype.name}, but the prior {prior.name!r} is '
      f'{dtype.name}. Cast one of them: `tf.cast(state, {dtype.name!r})`.'
    )


def _check_delta(delta):
  if delta.shape.rank != 0:
    raise ValueError(
      '`delta` must be one variance for all chains, but has shape '
      f'{delta.shape}.'
    )
