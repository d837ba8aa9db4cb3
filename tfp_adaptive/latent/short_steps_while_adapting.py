"""Takes some much smaller steps while step sizes are tuned.

  delta_t = delta m,   log m ~ U(log 1e-6, 0) with probability s, else 0

One step size serves all chains. A chain that starts where the target is far
steeper than elsewhere, such as a log volatility of 0 for data that want 8,
would reject every step of that size, now and for ever. m depends on no state:
each step keeps the target, whatever m. After the adaptation m = 1 always, and
nothing is lost.

Source: random step sizes as in Neal (2011), MCMC using Hamiltonian dynamics,
section 5.4.2.2, https://arxiv.org/abs/1206.1901.
"""

import collections

import tensorflow as tf

from tfp_adaptive.core import adaptation_base
from tfp_adaptive.core import arguments
from tfp_adaptive.core import control_flow
from tfp_adaptive.core import random
from tfp_adaptive.core import short_steps
from tfp_adaptive.core import step_sizes
from tfp_adaptive.core import tfp_private
from tfp_adaptive.core.metropolis_hastings import MetropolisHastings

__all__ = [
  'ShortStepsWhileAdapting',
  'ShortStepsWhileAdaptingResults',
  'adapted',
  'tuned',
]

# delta is a variance: a thousandth of the length.
_SHORTEST = 1e-6


class ShortStepsWhileAdaptingResults(
  collections.namedtuple(
    'ShortStepsWhileAdaptingResults', ['inner_results', 'is_short', 'step']
  )
):
  """Results of `ShortStepsWhileAdapting`.

  Attributes:
    inner_results: Those of the inner kernel, its `step_size` as it was given.
    is_short: Whether the last step was shorter than that, [] bool.
    step: Steps taken, [] int32.
  """

  __slots__ = ()


class ShortStepsWhileAdapting(adaptation_base.AdaptationWrapper):
  """Brings chains out of places where the step size of the others is too large.

  Put it inside the wrapper that tunes the step size, and give that wrapper
  `log_accept_prob_getter`: a short step says nothing of the size that is tuned.
  """

  def __init__(
    self, inner_kernel, num_adaptation_steps, short_step_share=0.2, name=None
  ):
    """Builds the wrapper; no Tensor is created here.

    Args:
      inner_kernel: A kernel whose innermost results have a `step_size`, [], a
        variance as delta of the samplers of latent Gaussian models is.
      num_adaptation_steps: Steps some of which are short, a non-negative int.
      short_step_share: s, of them that are, in [0, 1); all chains take the
        same.
      name: Prefix of op names.

    Raises:
      ValueError: If `short_step_share` is no share, or `num_adaptation_steps`
        no count.
    """
    arguments.check_num_adaptation_steps(num_adaptation_steps)
    short_steps.check_share(short_step_share)
    self._parameters = dict(
      inner_kernel=inner_kernel,
      num_adaptation_steps=num_adaptation_steps,
      short_step_share=short_step_share,
      name=name,
    )

  def bootstrap_results(self, init_state):
    """Starts at the first step."""
    return ShortStepsWhileAdaptingResults(
      inner_results=self.inner_kernel.bootstrap_results(init_state),
      is_short=tf.constant(False),
      step=tf.zeros([], tf.int32),
    )

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Steps the inner kernel at delta m and gives delta back."""
    with tf.name_scope(self.name):
      previous = previous_kernel_results
      seed = random.sanitize(seed)
      step_size = tfp_private.get_innermost(previous, 'step_size')
      shrink = self._draw(previous.step, step_size.dtype, seed)
      state, inner = self.inner_kernel.one_step(
        current_state,
        tfp_private.replace_innermost(
          previous.inner_results, step_size=step_size * shrink
        ),
        seed=seed,
      )
      return state, previous._replace(
        inner_results=tfp_private.replace_innermost(inner, step_size=step_size),
        is_short=shrink < 1.0,
        step=previous.step + 1,
      )

  def _draw(self, step, dtype, seed):
    """Returns m, []; frozen steps draw nothing."""
    share, one = self._parameters['short_step_share'], tf.ones([], dtype)
    if not share or not self.num_adaptation_steps:
      return one
    (shrink,) = control_flow.apply_if(
      step < self.num_adaptation_steps,
      lambda _: [short_steps.draw(share, dtype, seed, _SHORTEST)],
      one,
    )
    return shrink

  @staticmethod
  def log_accept_prob_getter(target_accept_prob, name='log_accept_ratio'):
    """Returns what a step-size wrapper should read in place of acceptance.

    Args:
      target_accept_prob: What the wrapper aims at, a float; a short step counts
        as that. A copy of the wrapper with another aim needs another getter.
      name: Of the log acceptance ratio in the innermost results.

    Returns:
      A function of kernel results to log probabilities, [chains...].
    """

    def get(results):
      log_prob = tf.minimum(tfp_private.get_innermost(results, name), 0.0)
      is_short = tfp_private.get_innermost(results, 'is_short', default=False)
      wanted = tf.math.log(tf.constant(target_accept_prob, log_prob.dtype))
      return tf.where(is_short, wanted, log_prob)

    return get


def adapted(
  proposal, num_adaptation_steps, target_accept_prob, short_step_share
):
  """Puts Metropolis-Hastings and the adaptation of delta around a proposal.

  DualAveragingStepSizeAdaptation   TFP's; learns delta, then freezes it
   └ ShortStepsWhileAdapting        brings far starts home meanwhile
      └ MetropolisHastings          accepts or rejects
         └ Uncalibrated...          proposes, in the prior's coordinates
  """
  kernel = ShortStepsWhileAdapting(
    MetropolisHastings(proposal), num_adaptation_steps, short_step_share
  )
  return tuned(kernel, num_adaptation_steps, target_accept_prob)


def tuned(
  kernel,
  num_adaptation_steps,
  target_accept_prob,
  step_size='step_size',
  log_accept_ratio='log_accept_ratio',
):
  """Puts TFP's dual averaging around a kernel; short steps do not count.

  Args:
    kernel: One whose results hold the two names below.
    num_adaptation_steps: Steps that tune.
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    step_size: Name of the innermost result that is tuned.
    log_accept_ratio: Name of the innermost result that says how it does.

  Returns:
    A `tfp.mcmc.DualAveragingStepSizeAdaptation`.
  """
  get = ShortStepsWhileAdapting.log_accept_prob_getter
  return step_sizes.tuned(
    kernel,
    num_adaptation_steps,
    target_accept_prob,
    get(target_accept_prob, log_accept_ratio),
    step_size,
  )
