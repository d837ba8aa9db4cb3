"""Steps some of which are short, so that no chain stays stuck in a neck.

A step size that is right for the bulk of a target is rejected almost always
where that is narrow: chains seldom enter such places, stay for thousands of
steps where they do, and no diagnosis sees what was not entered. With a
probability that does not depend on the state, a step is shorter:

  s_t = s m,   log m ~ U(log 0.1, 0) with probability `share`, m = 1 else

Each m has its own reversible step, and their mixture is reversible too. All
chains draw the same m, so that a step is short as a whole, and adaptations
leave it alone: it says nothing of the step size that is learned.

Where the target has no neck that share of the steps is lost, so that it is
taken only where one shows: a proposal with a log ratio below -20, which is
never accepted. On Gaussians, regressions and item responses there is none of
32,000; funnels and hierarchies have one in 2 to 1000.

Or steps are short `while_adapting` alone, and much shorter. One step size
serves all chains: one that starts where the target is far steeper than
elsewhere, such as a log volatility of 0 for data that want 8, would reject
every step of that size, now and for ever.

Source: random step sizes as in Neal (2011), MCMC using Hamiltonian dynamics,
section 5.4.2.2, https://arxiv.org/abs/1206.1901.
"""

import collections
import math

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private

__all__ = ['ShortSteps', 'ShortStepsResults', 'around', 'check_share', 'draw']

_SHORTEST = 0.1
_SHARE = 0.2  # Where a neck shows: where more than ...
_MOST_LOST = 1e-3  # ... of the proposals have a log ratio below
_NEVER = -20.0
_GAIN = 4.0  # How fast proposals of the first steps are forgotten.
_NOTHING = interfaces.Cost(matrix_product=0)
_SALT = 7  # Tells these draws from those of the noise, of the same seed.


class ShortStepsResults(
  merging.Merging,
  collections.namedtuple(
    'ShortStepsResults',
    [
      'inner_results',
      'is_short',
      'short_step_share',
      'share_lost',
      'step',
      'num_full',
    ],
  ),
):
  """Results of `ShortSteps`.

  Attributes:
    inner_results: Those of the inner kernel, the next `step_size` as it was
      given; that of `proposed_results` is of the step just taken.
    is_short: Whether the last step was shorter than that, [] bool.
    short_step_share: Share of the next steps that are, [].
    share_lost: Of the proposals of adapting steps that were not short, those
      that are never accepted; later ones count more, [].
    step: Steps taken, [] int32.
    num_full: Of the adapting ones, those that were not short, [] int32.
  """

  __slots__ = ()
  merge_rules = dict(num_full=merging.largest)


class ShortSteps(kernel_base.Wrapper):
  """Takes some steps of a part of the step size, all chains the same."""

  def __init__(
    self,
    inner_kernel,
    num_adaptation_steps,
    short_step_share=None,
    shortest=_SHORTEST,
    while_adapting=False,
    name=None,
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: A calibrated kernel whose innermost results have a
        `step_size`, such as `tfpa.MetropolisHastings` around a proposal.
      num_adaptation_steps: Steps that adapt, a non-negative int: they look for
        necks.
      short_step_share: Share of the steps that are short, in [0, 1); `None`:
        a fifth where a neck shows while adapting, none elsewhere.
      shortest: Of a step, in units of the others, in (0, 1).
      while_adapting: Whether no step is short after the adapting ones; then a
        share must be given.
      name: Prefix of op names.

    Raises:
      ValueError: If `short_step_share` is no share, `num_adaptation_steps` no
        count, or `shortest` no part.
    """
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    if short_step_share is not None or while_adapting:
      check_share(short_step_share)
    if not 0.0 < shortest < 1.0:
      raise ValueError(
        f'`shortest` must be in (0, 1), but got {shortest!r}: it is the part '
        'of a step that the shortest ones are. Write `shortest=0.1`.'
      )
    self._parameters = dict(
      inner_kernel=inner_kernel,
      num_adaptation_steps=num_adaptation_steps,
      short_step_share=short_step_share,
      shortest=shortest,
      while_adapting=while_adapting,
      name=name,
    )

  def bootstrap_results(self, init_state):
    """Starts as where there is a neck: nothing says that there is none."""
    inner = self.inner_kernel.bootstrap_results(init_state)
    dtype = stack.proposal_results(inner).step_size.dtype
    share = self._parameters['short_step_share']
    return ShortStepsResults(
      inner_results=inner,
      is_short=tf.constant(False),
      short_step_share=tf.constant(_SHARE if share is None else share, dtype),
      share_lost=tf.ones([], dtype),
      step=tf.zeros([], tf.int32),
      num_full=tf.zeros([], tf.int32),
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Steps the inner kernel at s m and gives s back."""
    with tf.name_scope(self.name):
      previous = previous_kernel_results
      seed = random.sanitize(seed)
      step_size = stack.proposal_results(previous).step_size
      part = self._draw(previous, step_size.dtype, seed)
      state, inner = self.inner_kernel.one_step(
        current_state,
        tfp_private.replace_innermost(
          previous.inner_results, step_size=step_size * part
        ),
        seed=seed,
      )
      inner = tfp_private.replace_innermost(inner, step_size=step_size)
      return state, self._counted(
        previous._replace(
          inner_results=inner, is_short=part < 1.0, step=previous.step + 1
        )
      )

  def _draw(self, previous, dtype, seed):
    """Returns m, []."""
    options = self._parameters

    def drawn(_=None):
      share = previous.short_step_share
      return [draw(share, dtype, seed, options['shortest'])]

    if not options['while_adapting']:
      return drawn()[0]
    one = tf.ones([], dtype)
    is_adapting = previous.step < options['num_adaptation_steps']
    return control_flow.apply_if(is_adapting, drawn, one)[0]

  def _counted(self, results):
    """Returns results with what was lost, and the share that follows."""
    num_adaptation_steps = self._parameters['num_adaptation_steps']
    if not num_adaptation_steps or self._parameters['while_adapting']:
      return results
    is_full = (results.step <= num_adaptation_steps) & ~results.is_short
    ratio = stack.metropolis_hastings_results(results).log_accept_ratio
    dtype = results.share_lost.dtype
    is_lost = (ratio <= _NEVER) | tf.math.is_nan(ratio)
    lost = tf.reduce_mean(tf.cast(is_lost, dtype))
    rate = _GAIN / (tf.cast(results.num_full, dtype) + _GAIN + 1.0)
    rate *= tf.cast(is_full, dtype)
    share_lost = results.share_lost + rate * (lost - results.share_lost)
    share = results.short_step_share
    if self._parameters['short_step_share'] is None:
      share = _SHARE * tf.cast(share_lost > _MOST_LOST, dtype)
    return results._replace(
      short_step_share=share,
      share_lost=share_lost,
      num_full=results.num_full + tf.cast(is_full, tf.int32),
    )

  def teaching_share(self, results):
    """Returns the share of the adapting steps that were not short, a float.

    Args:
      results: Results of this kernel; without them what is learned is 0.
    """
    share = self._parameters['short_step_share']
    if share is not None or results is None:
      return 1.0 - (share or 0.0)
    num_adapting = min(
      int(results.step), self._parameters['num_adaptation_steps']
    )
    return int(results.num_full) / max(num_adapting, 1)

  def frozen_at(self, results):
    inner = stack.frozen(self.inner_kernel, results.inner_results)
    if self._parameters['while_adapting']:
      return inner
    share = float(results.short_step_share)
    return around(inner, 0, share, self._parameters['shortest'])

  def cost_at(self, results, kind):
    """Returns the mean cost; short steps teach nothing and cost as frozen."""
    inner = None if results is None else results.inner_results
    taught = stack.cost(self.inner_kernel, inner, kind)
    if taught is None:
      return None
    plain = kind._replace(is_replayed=False, beside=_NOTHING)
    frozen = stack.cost(self.inner_kernel, inner, plain)
    share = self.teaching_share(results)
    return interfaces.Cost(
      *(
        of_taught if of_taught is None else rest + share * (of_taught - rest)
        for of_taught, rest in zip(taught, frozen)
      )
    )


def around(kernel, num_adaptation_steps, share, shortest=_SHORTEST):
  """Returns the kernel with short steps, or itself where there are none.

  Args:
    kernel: As of `ShortSteps`.
    num_adaptation_steps: Steps that look for necks; 0: none is seen.
    share: As of `ShortSteps`.
    shortest: As of `ShortSteps`.
  """
  if share is None:
    share = None if num_adaptation_steps else 0.0
  else:
    check_share(share)
  if share == 0.0:
    return kernel
  return ShortSteps(kernel, num_adaptation_steps, share, shortest)


def draw(share, dtype, seed, shortest=_SHORTEST):
  """Returns m, [].

  Args:
    share: Float or [].
    dtype: Of the state.
    seed: [2] int32, of the step.
    shortest: The least m.
  """
  choice_seed, length_seed = random.split(random.fold_in(seed, _SALT), 2)
  is_short = random.uniform([], dtype, choice_seed) <= share
  length = random.uniform([], dtype, length_seed)
  return tf.where(is_short, tf.exp(math.log(shortest) * length), 1.0)


def check_share(share):
  """Refuses what is no share of steps."""
  arguments.check_share(
    share,
    'short_step_share',
    'It is the share of steps that are shorter than `step_size`. Write for '
    'example `short_step_share=0.2`, or 0 for steps of one size.',
  )
