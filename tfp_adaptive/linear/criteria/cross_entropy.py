"""Speed measure with a cross-entropy term: proposals that fit the target.

  F = E[ min(0, log_accept_ratio) ] + beta ( H[q] + weight E[ log pi(y) ] )

H[q] is the entropy of the proposal. H[q] + E[log pi(y)] is minus the
Kullback-Leibler divergence of the proposal from the target.

Sources: Hirt, Titsias and Dellaportas (2021), who name this variation,
https://arxiv.org/abs/2110.14625; for the divergence as objective, Dharamshi,
Ngo and Rosenthal (2021), https://arxiv.org/abs/2105.00520.
"""

from tfp_adaptive.core import shown
from tfp_adaptive.linear.criteria.generalized_speed_measure import (
  generalized_speed_measure,
)


@shown.remembers_call
def cross_entropy(target_accept_prob, weight=1.0, **options):
  """Builds the speed measure with a cross-entropy term.

  Args:
    target_accept_prob: Wanted mean acceptance, in (0, 1).
    weight: Weight of E[log pi(y)] beside the entropy, non-negative; 0 gives the
      generalized speed measure.
    **options: Arguments of `generalized_speed_measure`.

  Returns:
    An `interfaces.Criterion`.

  Raises:
    ValueError: If an argument is not one of those allowed.

  Example:
    target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3))
    kernel = tfpa.gradient_adaptive_langevin(
      target.log_prob,
      num_adaptation_steps=1000,
      criterion=tfpa.criteria.cross_entropy(0.55),
    )
  """
  if not weight >= 0.0:
    raise ValueError(f'`weight` must not be negative, but got {weight!r}.')
  criterion = generalized_speed_measure(target_accept_prob, **options)

  def entropy(state, transition):
    fit = weight * transition.proposed_log_prob
    return criterion.entropy(state, transition) + fit

  return criterion._replace(name='cross_entropy', entropy=entropy)
