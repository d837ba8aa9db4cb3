"""The constants of the papers, as ordinary arguments of the builders.

  tfpa.gradient_adaptive_langevin(fn, 1000, **presets.langevin())

Sources: Titsias and Dellaportas (2019), section 4 and the authors' code,
https://arxiv.org/abs/1911.01373; Hirt, Titsias and Dellaportas (2021), Appendix
D, https://arxiv.org/abs/2110.14625; Strathmann et al. (2015), section 5,
https://arxiv.org/abs/1506.02564.
"""

import tfp_adaptive as tfpa

__all__ = [
  'adaptive_metropolis',
  'first_scale',
  'hamiltonian',
  'kernel_hamiltonian',
  'langevin',
  'random_walk',
]


def first_scale(event_size):
  """Returns the scale that every learned factor starts at."""
  return 0.1 * event_size**-0.5


def random_walk(target_accept_prob=0.25):
  """Returns arguments of `gradient_adaptive_random_walk`."""
  return _speed_measured(target_accept_prob, 5e-5)


def langevin(target_accept_prob=0.55):
  """Returns arguments of `gradient_adaptive_langevin`."""
  return dict(_speed_measured(target_accept_prob, 1.5e-4), short_step_share=0.0)


def hamiltonian(target_accept_prob=0.67):
  """Returns arguments of `entropy_adaptive_hamiltonian`."""
  return dict(
    preconditioner=_dense_factor(),
    optimizer=tfpa.optimizers.adam(1e-3),
    criterion=tfpa.criteria.generalized_speed_measure(
      target_accept_prob,
      'acceptance',
      min_entropy_weight=1e-2,
      max_entropy_weight=1e2,
      penalty_threshold=0.75,
      penalty_weights=(1e3, 1e5),
      penalty_rate=0.01,
    ),
  )


def adaptive_metropolis():
  """Returns arguments of `adaptive_metropolis`."""
  return dict(preconditioner=tfpa.preconditioners.cholesky(first_scale))


def kernel_hamiltonian(
  target_log_prob_fn,
  num_adaptation_steps,
  surrogate=None,
  num_leapfrog_steps=None,
  step_size=None,
  history=None,
  target_is_stochastic=False,
):
  """Builds the KMC of the paper; arguments as in `tfpa.kernel_hamiltonian`.

  Momenta have unit scale, step sizes are drawn from [0.01, 0.1] and stay so, 1
  to 10 leapfrog steps, no walks.
  """
  proposal = tfpa.proposals.UncalibratedSurrogateHamiltonian(
    target_log_prob_fn,
    surrogate or tfpa.surrogates.kernel_exponential_family_finite(),
    tfpa.preconditioners.diagonal(init_scale=1.0),
    num_leapfrog_steps or (1, 10),
    step_size or 0.1,
    step_size_jitter=(0.1, 1.0),
    walk_share=0.0,
    target_is_stochastic=target_is_stochastic,
  )
  return tfpa.adaptation.ScoreMatchingAdaptation(
    tfpa.MetropolisHastings(proposal),
    num_adaptation_steps,
    history,
    learn_momentum_scale=False,
  )


def _speed_measured(target_accept_prob, learning_rate):
  return dict(
    preconditioner=_dense_factor(),
    optimizer=tfpa.optimizers.rmsprop(learning_rate),
    criterion=tfpa.criteria.generalized_speed_measure(
      target_accept_prob, 'acceptance', use_accept_flag=True
    ),
  )


def _dense_factor():
  return tfpa.preconditioners.cholesky(first_scale, min_scale=1e-3)
