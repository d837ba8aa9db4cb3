"""Makes some steps short, so that no chain stays stuck in a narrow region.

A step size that suits the bulk of a target is almost always rejected in a
narrow region. Chains seldom enter such a region, but stay for thousands of
steps once inside. No diagnostic sees a region that no chain entered. The step
size s is therefore smaller with a probability that does not depend on the
state:

  s_t = s m,   log m ~ U(log 0.1, 0) with probability `share`, else m = 1

Steps with a fixed m are reversible, and so is a mixture of such steps. All
chains draw the same m. Adaptations skip short steps, because a short step says
nothing about s.

If the target has no narrow region, short steps are wasted. The warm-up counts
proposals with a log ratio of at most -20, which are almost never accepted. If
more than 1 in 1000 proposals are of this kind, short steps continue. Gaussians,
regressions and item responses had none in 32,000 proposals. Funnels and
hierarchies have one such proposal in 2 to 1000.

With `while_adapting`, only adapting steps are short. All chains share one step
size, and a chain may start where the target is far steeper than elsewhere. An
example is a log volatility of 0 for data that need 8. Such a chain would reject
every step of the shared size.

Source: random step sizes as in Neal (2011), MCMC using Hamiltonian dynamics,
section 5.4.2.2, https://arxiv.org/abs/1206.1901.
"""

import math
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import merging
from tfp_adaptive.core import random
from tfp_adaptive.core import stack
from tfp_adaptive.core import tfp_private

_SHORTEST = 0.1
_SHARE = 0.2  # Share of short steps if a narrow region was found.
_MOST_LOST = 1e-3  # More log ratios of at most `_NEVER` show a narrow region.
_NEVER = -20.0  # Proposals with this log ratio are almost never accepted.
_GAIN = 4.0  # How fast proposals of the first steps are forgotten.
_NOTHING = interfaces.Cost(matrix_product=0)
_SALT = 7  # Separates these draws from the noise, which has the same seed.


class ShortStepsResults(NamedTuple):
  """Results of `ShortSteps`."""

  # Results of the inner kernel, with the full `step_size`; `proposed_results`
  # have the step size of the step just taken.
  inner_results: Any
  is_short: tf.Tensor  # Whether the last step was short, [] bool.
  short_step_share: tf.Tensor  # Share of the next steps that are short, [].
  # Share of log ratios of at most -20 in the adapting steps that were not
  # short; later steps count more, [].
  share_lost: tf.Tensor
  step: tf.Tensor  # Steps taken, [] int32.
  num_full: tf.Tensor  # Adapting steps that were not short, [] int32.

  merge_rules = dict(num_full=merging.largest)


class ShortSteps(kernel_base.Wrapper):
  """Shortens some steps by a random factor that all chains share."""

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
      num_adaptation_steps: Steps that adapt and look for narrow regions, a
        non-negative int.
      short_step_share: Share of the steps that are short, in [0, 1). By default
        a fifth if the adaptation finds a narrow region, else none.
      shortest: Least factor of the step size, in (0, 1).
      while_adapting: Whether only adapting steps may be short. If so, give a
        `short_step_share`.
      name: Prefix of op names.

    Raises:
      ValueError: If `short_step_share`, `num_adaptation_steps` or `shortest` is
        out of its range.
    """
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    if short_step_share is not None or while_adapting:
      check_share(short_step_share)
    if not 0.0 < shortest < 1.0:
      raise ValueError(
        f'`shortest` must be in (0, 1), but got {shortest!r}. It '
        'multiplies the step size of the shortest steps. Write for example '
        '`shortest=0.1`.'
      )
    self._keep(locals())

  def bootstrap_results(self, init_state):
    """Starts with short steps, because nothing is known of the target yet."""
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
    """Steps the inner kernel with step size s m, then restores s."""
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
    """Returns the factor m of the step size, []."""
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
    """Returns results with new `share_lost` and `short_step_share`."""
    num_adaptation_steps = self._parameters['num_adaptation_steps']
    if not num_adaptation_steps or self._parameters['while_adapting']:
      return results
    is_full = (results.step <= num_adaptation_steps) & ~results.is_short
    mh_results = stack.metropolis_hastings_results(results)
    ratio = mh_results.log_accept_ratio
    dtype = results.share_lost.dtype
    is_lost = (ratio <= _NEVER) | tf.math.is_nan(ratio)
    # A chain that can never move is in no narrow region.
    lost = adaptation_base.mean_of_alive(
      adaptation_base.is_alive(mh_results), tf.cast(is_lost, dtype)
    )
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

  def scalars_at(self, results):
    return dict(is_short=results.is_short)

  def teaching_share(self, results):
    """Returns the share of the adapting steps that were not short, a float.

    Before the first step, a learned share of short steps counts as 0.
    """
    share = self._parameters['short_step_share']
    if share is not None or results is None or not int(results.step):
      return 1.0 - (share or 0.0)
    num_adapting = min(
      int(results.step), self._parameters['num_adaptation_steps']
    )
    return int(results.num_full) / max(1, num_adapting)

  def frozen_at(self, results):
    inner = stack.frozen(self.inner_kernel, results.inner_results)
    if self._parameters['while_adapting']:
      return inner
    share = float(results.short_step_share)
    return around(inner, 0, share, self._parameters['shortest'])

  def cost_at(self, results, kind):
    """Returns the mean cost; a short step costs as much as a frozen step."""
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
  """Returns the kernel with short steps, or `kernel` if no step is short.

  No step is short if `share` is `None` and no step adapts.
  """
  if share is None:
    share = None if num_adaptation_steps else 0.0
  else:
    check_share(share)
  if share == 0.0:
    return kernel
  return ShortSteps(kernel, num_adaptation_steps, share, shortest)


def draw(share, dtype, seed, shortest=_SHORTEST):
  """Returns the factor m of the step size, [], at least `shortest`."""
  choice_seed, length_seed = random.split(random.fold_in(seed, _SALT), 2)
  is_short = random.uniform([], dtype, choice_seed) <= share
  length = random.uniform([], dtype, length_seed)
  return tf.where(is_short, tf.exp(math.log(shortest) * length), 1.0)


def check_share(share):
  """Refuses a value that is not a share of steps."""
  arguments.check_share(
    share,
    'short_step_share',
    'It is the share of steps that are shorter than `step_size`. Write for '
    'example `short_step_share=0.2`, or 0 for steps of one size.',
  )
