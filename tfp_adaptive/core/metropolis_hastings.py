"""TFP's Metropolis-Hastings with reproducible draws and lean results.

It differs from `tfp.mcmc.MetropolisHastings` in two ways:

* The uniform comes from `core/random`, so that the decision is the same in
  eager mode, in a graph and under XLA.
* In `accepted_results`, fields that describe one step are `[]` (`seed`,
  `noise`, `trajectory`). In `proposed_results`, fields that all chains share
  are `[]` (params and ranges of leapfrog steps).
"""

import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import random
from tfp_adaptive.core import shown
from tfp_adaptive.core import tfp_private

_ONE_STEP_FIELDS = ('seed', 'noise', 'trajectory')
_LAW_FIELDS = (
  'preconditioner_params',
  'surrogate_params',
  'walk_params',
  'num_leapfrog_steps',
)


class MetropolisHastings(tfp.mcmc.MetropolisHastings):
  """Accepts or rejects the move of an uncalibrated proposal.

  Results are TFP's `MetropolisHastingsKernelResults`: `accepted_results`,
  `is_accepted`, `log_accept_ratio` ([chains...]), `proposed_state`,
  `proposed_results`, `extra` and `seed` ([2] int32, enough to run the step
  again). A ratio that is not finite becomes -inf, which rejects the move.
  """

  _keeps_momentum = False
  __repr__ = shown.kernel

  def __init__(self, inner_kernel, name=None):
    """Builds the kernel.

    Args:
      inner_kernel: An uncalibrated proposal.
      name: Prefix of the names of bootstrap ops.

    Raises:
      ValueError: If the momenta of the proposal need another acceptance rule.
    """
    is_ours = isinstance(inner_kernel, kernel_base.Kernel)
    keeps_momentum = is_ours and inner_kernel.keeps_momentum
    if keeps_momentum != self._keeps_momentum:
      raise ValueError(
        f'{type(self).__name__} cannot wrap {type(inner_kernel).__name__}: '
        'momenta that are kept between steps and momenta that are drawn at '
        'every step need different acceptance rules. Build both by '
        '`tfpa.fisher_divergence_hamiltonian(..., keep_momentum=True)`.'
      )
    super().__init__(inner_kernel, name)

  def one_step(self, current_state, previous_kernel_results, seed=None):
    """Proposes once and accepts with probability min(1, exp(r))."""
    seed = random.sanitize(seed)
    proposal_seed, accept_seed = random.split(seed, 2)
    previous = previous_kernel_results.accepted_results
    proposed_state, proposed = self.inner_kernel.one_step(
      current_state, previous, seed=proposal_seed
    )
    log_accept_ratio = self._log_accept_ratio(previous, proposed)
    log_uniform = random.log_uniform(
      tfp_private.prefer_static.shape(log_accept_ratio),
      log_accept_ratio.dtype,
      accept_seed,
    )
    return self._decided(
      log_uniform < log_accept_ratio,
      (current_state, previous),
      (proposed_state, proposed),
      log_accept_ratio,
      seed,
    )

  def bootstrap_results(self, init_state):
    """Returns results for `init_state`, as if it had just been accepted."""
    init_state = tf.nest.map_structure(tf.convert_to_tensor, init_state)
    results = super().bootstrap_results(init_state)
    return results._replace(
      accepted_results=_without(results.accepted_results, _ONE_STEP_FIELDS),
      proposed_results=_without(results.proposed_results, _LAW_FIELDS),
    )

  def _log_accept_ratio(self, previous, proposed):
    """Returns log pi(y) q(x | y) - log pi(x) q(y | x), [chains...]."""
    return tfp_private.safe_sum(
      [
        proposed.target_log_prob,
        -previous.target_log_prob,
        proposed.log_acceptance_correction,
      ]
    )

  def _decided(self, is_accepted, current, proposed, log_accept_ratio, seed):
    """Returns the next state and results.

    `current` and `proposed` are (state, results) before and after the step.
    """
    state = _choose(is_accepted, proposed[0], current[0])
    return state, tfp_private.MetropolisHastingsKernelResults(
      accepted_results=_choose_results(
        is_accepted, _without(proposed[1], _ONE_STEP_FIELDS), current[1]
      ),
      is_accepted=is_accepted,
      log_accept_ratio=log_accept_ratio,
      proposed_state=proposed[0],
      proposed_results=_without(proposed[1], _LAW_FIELDS),
      extra=[],
      seed=seed,
    )


def _choose(is_accepted, proposed, current):
  """Selects states by chain in any structure; TFP's `choose` takes no dict."""
  chosen = tfp_private.choose(
    is_accepted, tf.nest.flatten(proposed), tf.nest.flatten(current)
  )
  return tf.nest.pack_sequence_as(current, chosen)


def _choose_results(is_accepted, proposed, current):
  """Selects results by chain; fields that all chains share stay the same."""
  chosen = tfp_private.choose(
    is_accepted, _without(proposed, _LAW_FIELDS), _without(current, _LAW_FIELDS)
  )
  law = {f: getattr(current, f) for f in _LAW_FIELDS if f in current._fields}
  return chosen._replace(**law)


def _without(results, fields):
  return results._replace(**{f: [] for f in fields if f in results._fields})
