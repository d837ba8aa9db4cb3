"""The numbers of a cell: costs, effective sample sizes, errors."""

import numpy as np
import scipy.special
import scipy.stats

from experiments.papers import diagnostics
from experiments.papers import learned
from experiments.papers import mixed_moments
from experiments.papers import moments
from experiments.samplers.base import find_field

_NUM_EXACT = 100_000
_NUM_LAGS = 101


def step_counts(config, index):
  """Returns (num_adaptation_steps, num_results) of one method.

  Counts given for the method itself are steps. Counts of the config may be
  gradients, which are divided by the number of leapfrog steps.
  """
  method = config.methods[index]
  per_step = 1
  if config.counts == 'gradients':
    per_step = getattr(method, 'num_leapfrog_steps', 1)

  def count(name, least):
    own = getattr(method, name)
    if own is not None:
      return own
    return max(least, getattr(config, name) // per_step)

  return count('num_adaptation_steps', 0), count('num_results', 4)


def measure(config, index, method, target, result, factor):
  """Returns the numbers of a cell, and the `Summary` of its states.

  Args:
    factor: Result of `learned.learned_factor`, or None.
  """
  num_adaptation_steps, num_results = step_counts(config, index)
  states = result.states
  summary = diagnostics.summarize(states)
  seconds = {key: float(value) for key, value in result.seconds.items()}
  num_sampling_steps = num_results * (config.num_steps_between_results + 1)
  calls = {
    'adaptation': _calls(
      method.adapting_cost,
      result.adaptation_trace,
      num_adaptation_steps,
      config.num_chains,
    ),
    'sampling': _calls(
      method.frozen_cost, result.trace, num_sampling_steps, config.num_chains
    ),
  }
  record = {
    'method': config.methods[index].name,
    'num_leapfrog_steps': getattr(
      config.methods[index], 'num_leapfrog_steps', None
    ),
    'target_accept_prob': getattr(
      config.methods[index], 'target_accept_prob', None
    ),
    'step_size': _step_size(method, result),
    'num_chains': config.num_chains,
    'num_adaptation_steps': num_adaptation_steps,
    'num_results': num_results,
    'seconds': seconds,
    'calls': calls,
    'num_simulations': _simulations(target, calls),
    'accept_rate': _mean(result.trace, 'is_accepted'),
    'ess': spread(summary.ess),
    'ess_squared': spread(summary.ess_squared),
    'ess_bulk': spread(summary.ess_bulk),
    'ess_tail': spread(summary.ess_tail),
    'ess_log_prob': _ess_log_prob(result.trace),
    'rhat_max': _finite(np.nanmax(summary.rhat, initial=-np.inf)),
    'rhat_median': _finite(np.nanmedian(summary.rhat)),
    'worst_coordinate': int(np.argmin(summary.ess)),
    'num_diverging': _sum(result.trace, 'diverging'),
    **_adaptation_end(result.adaptation_trace),
    **_efficiency(
      summary.ess,
      seconds,
      # The draws of all steps have no phase of their own.
      calls['sampling'] if config.discard_adaptation else None,
      num_adaptation_steps,
    ),
    **_against_truth(target, states, summary),
    **_learned(factor, target),
    'moments': moments.compare(target, states),
    **first_coordinate(target, states),
  }
  if config.reference is not None:
    record['mmd'] = mixed_moments.distances(states, config.reference)
  return record, summary


def _efficiency(ess, seconds, calls, num_adaptation_steps):
  """Returns effective samples per second, gradient and target call."""
  is_split = seconds['adaptation'] > 0.0 or not num_adaptation_steps
  amounts = {
    'second': seconds['adaptation'] + seconds['sampling'],
    # As in the papers, the seconds of adaptation are left out.
    'sampling_second': seconds['sampling'] if is_split else None,
    'gradient': calls['gradient'] if calls else None,
    # A call evaluates the density, or an estimate of the density.
    'target_call': calls['target'] if calls else None,
  }
  sizes = {'min': ess.min(), 'median': np.median(ess)}
  return {
    f'{size}_ess_per_{unit}': _finite(value / amount) if amount else None
    for size, value in sizes.items()
    for unit, amount in amounts.items()
  }


def _adaptation_end(trace):
  """Returns the last values of the criterion's own variables."""
  last_tenth = {
    name: values[-max(1, len(values) // 10) :]
    for name, values in trace.items()
    if name != 'extra' and np.ndim(values) == 1
  }
  return {
    'entropy_weight': _last(trace, 'entropy_weight'),
    'penalty_weight': _last(trace, 'penalty_weight'),
    # The trace is noisy, so its last tenth is averaged.
    'abs_eigenvalue': _mean(last_tenth, 'mean_abs_eigenvalue'),
  }


def _calls(cost, trace, num_steps, num_chains):
  """Returns calls summed over steps and chains, or None if unknown."""
  if num_steps == 0:
    return {'target': 0, 'gradient': 0, 'hessian_vector': 0}
  if cost is None:
    cost = _counted_cost(trace.get('extra', {}))
    if cost is None:
      return None
  names = ('target', 'gradient', 'hessian_vector')
  return {
    name: int(round(value * num_steps * num_chains))
    for name, value in zip(names, cost)
  }


def _simulations(target, calls):
  """Returns the number of simulated data sets, or None without a simulator."""
  if target.simulator is None or None in calls.values():
    return None
  num_estimates = sum(phase['target'] for phase in calls.values())
  return num_estimates * target.num_simulations


def _counted_cost(extra):
  """Returns calls per step and chain that a trace_fn counted."""
  if 'leapfrogs_taken' in extra:
    per_step = float(np.mean(extra['leapfrogs_taken']))
    return per_step, per_step, 0
  if 'num_target_calls' in extra:
    return float(np.mean(extra['num_target_calls'])), 0, 0
  return None


def _step_size(method, result):
  """Returns the learned delta of a sampler that learns only delta."""
  if not method.has_step_size:
    return None
  return _finite(find_field(result.final_kernel_results, 'step_size'))


def _against_truth(target, states, summary):
  """Returns the worst error of a mean, in standard errors of that mean."""
  if target.covariance is None:
    return {}
  variance = target.variances()
  error = np.abs(states.mean(axis=(0, 1), dtype=np.float64) - target.mean)
  standard_error = np.sqrt(variance / np.maximum(summary.ess, 1.0))
  return {'max_mean_z_score': _finite(np.max(error / standard_error))}


def first_coordinate(target, states):
  """Returns its autocorrelations, and its distance from exact draws.

  {} for a target without a simulator. The p-value of the Kolmogorov-Smirnov
  distance counts as many draws as the effective sample size.
  """
  if target.simulator is None or target.exact_draws_fn is None:
    return {}
  draws = states[..., 0]
  exact = target.exact_draws_fn(_NUM_EXACT, 0)[:, 0]
  distance = scipy.stats.ks_2samp(draws.ravel(), exact).statistic
  ess = diagnostics.geyer_ess(draws).sum()
  count = ess * len(exact) / (ess + len(exact))
  rho = diagnostics.autocorrelation(draws)[:_NUM_LAGS].mean(axis=1)
  return {
    'autocorrelation': np.round(rho, 4).tolist(),
    'ks': _finite(distance),
    'ks_p': _finite(scipy.special.kolmogorov(np.sqrt(count) * distance)),
  }


def _learned(factor, target):
  """Returns how far C C^T is from a multiple of the true covariance.

  If the factor is singular, the adaptation failed. The cell then records this
  and does not fail itself.
  """
  if factor is None:
    return {}
  if target.covariance is None:
    return {'is_factor_singular': learned.is_singular(factor)}
  condition = learned.condition_number(factor, target.covariance)
  return {
    'is_factor_singular': bool(np.isinf(condition)),
    'learned_condition_number': _finite(condition),
  }


def _ess_log_prob(trace):
  """Returns the effective sample size of log pi, summed over chains."""
  if 'target_log_prob' not in trace:
    return None
  return _finite(diagnostics.geyer_ess(trace['target_log_prob']).sum())


def spread(values):
  """Returns the least, the median and the largest of some sizes, or None."""
  functions = {'min': np.nanmin, 'median': np.nanmedian, 'max': np.nanmax}
  return {
    name: _finite(function(values)) for name, function in functions.items()
  }


def _finite(value):
  return float(value) if np.isfinite(value) else None


def _mean(trace, name):
  return _finite(np.mean(trace[name])) if name in trace else None


def _sum(trace, name):
  return int(np.sum(trace[name])) if name in trace else None


def _last(trace, name):
  values = trace.get(name, ())
  return _finite(np.ravel(values)[-1]) if len(values) else None
