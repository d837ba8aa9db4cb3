"""The constants of the papers, as ordinary arguments of the builders.

  tfpa.gradient_adaptive_langevin(fn, 1000, **presets.langevin())

What the library takes off the noise of a gradient, its control variates, the
papers have not, and neither has what is built here.

Sources: Titsias and Dellaportas (2019), section 4, supplement B and the
authors' code, https://arxiv.org/abs/1911.01373; Hirt, Titsias and Dellaportas
(2021), Algorithm 1 and the authors' jobs, https://arxiv.org/abs/2110.14625;
Strathmann et al. (2015), section 5, https://arxiv.org/abs/1506.02564.
"""

import tensorflow as tf

import tfp_adaptive as tfpa

_MIN_SCALE = 1e-3


def first_scale(event_size):
  """Returns the scale that every learned factor starts at."""
  return 0.1 * event_size**-0.5


def random_walk(target_accept_prob=0.25):
  """Returns arguments of `gradient_adaptive_random_walk`."""
  return _speed_measured(target_accept_prob, 5e-5)


def langevin(target_accept_prob=0.55):
  """Returns arguments of `gradient_adaptive_langevin`."""
  return dict(_speed_measured(target_accept_prob, 1.5e-4), short_step_share=0.0)


def hamiltonian(
  target_accept_prob=0.67,
  learning_rate=1e-3,
  entropy_weight_rate=0.1,
  penalty_threshold=0.75,
):
  """Returns arguments of `entropy_adaptive_hamiltonian`.

  The paper leaves the rates open; those of the authors' jobs depend on the
  target. Not as in the jobs: the first factor, which they draw at random, the
  acceptance, 0.65 there and 0.67 in the paper, clipped gradients, and for
  stochastic volatility the momentum of Adam, which is 0 there.

  Args:
    target_accept_prob: Wanted mean acceptance.
    learning_rate: Of Adam. The jobs have 0.05 for the ill-conditioned Gaussian
      and stochastic volatility, 1e-3 for the other Gaussians, 1e-4 for the
      regressions, the Cox process and the banana.
    entropy_weight_rate: Of beta, and of gamma in proportion to itself; the jobs
      have 0.5 for stochastic volatility.
    penalty_threshold: delta; 0.95 for stochastic volatility.
  """
  return dict(
    preconditioner=_dense_factor(),
    optimizer=tfpa.optimizers.adam(learning_rate),
    criterion=_without_control_variates(
      tfpa.criteria.generalized_speed_measure(
        target_accept_prob,
        'acceptance',
        entropy_weight_rate=entropy_weight_rate,
        min_entropy_weight=1e-2,
        max_entropy_weight=1e2,
        penalty_threshold=penalty_threshold,
        penalty_weights=(1e4, 1e5),
        penalty_rate=entropy_weight_rate,
      )
    ),
  )


def with_three_terms(kernel):
  """Returns an entropy-adapted HMC whose log det has n_0 = 3 fixed terms.

  The number of the authors' jobs; the builder has 2. Both are unbiased.

  Args:
    kernel: of `entropy_adaptive_hamiltonian`.
  """
  proposal = kernel.proposal.copy(num_fixed_terms=3)
  return kernel.copy(inner_kernel=tfpa.MetropolisHastings(proposal))


def adaptive_metropolis():
  """Returns arguments of `adaptive_metropolis`.

  The factor moves as supplement B prints it, off-diagonal entries at the rate
  of the diagonal ones,

    L <- L + rho L [w w^T - I]_lower,   w = L^-1 (x - mu),

  where the library's own move makes it twice that. rho is that of the authors'
  code, 5e-4 / (1 + 4 t / num_adaptation_steps), half of what the paper prints,
  and so is the scale s, which the paper leaves out. Here mu moves after the
  factor, there before it.
  """
  own = tfpa.preconditioners.cholesky(first_scale, min_scale=_MIN_SCALE)

  def move(factor, tangent):
    lower = tf.linalg.band_part(tangent, -1, 0)
    return own.project(factor + tf.matmul(factor, lower))

  return dict(preconditioner=own._replace(move=move), shape_rate=1e-3)


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
    criterion=_without_control_variates(
      tfpa.criteria.generalized_speed_measure(
        target_accept_prob, 'acceptance', use_accept_flag=True
      )
    ),
  )


def _without_control_variates(criterion):
  """Returns the criterion with the plain estimator of its gradient."""

  def value(state, transition):
    zero = tf.zeros_like(transition.log_accept_ratio)
    return criterion.value(state, transition._replace(control_variate=zero))

  return criterion._replace(value=value)


def _dense_factor():
  return tfpa.preconditioners.cholesky(first_scale, min_scale=_MIN_SCALE)
