"""Warnings about a run that several kernels and the driver share."""

import sys
import warnings

import numpy as np

_FEWEST_DECISIONS = 500  # With fewer decisions the acceptance rate is noise.
_WIDEST_MISS = 0.15  # A larger error of the acceptance rate gets a warning.
_MOST_NAMES = 10
# A warning never names a line of these modules.
_INSIDE = (__name__.partition('.')[0], 'contextlib')


def warn(message):
  """Warns at the line outside of the library that called it.

  Python shows a warning once for each line. A line of the library would
  therefore hide the warnings of all later calls.
  """
  level, frame = 2, sys._getframe(1)
  while frame.f_back and _room(frame) in _INSIDE:
    level, frame = level + 1, frame.f_back
  warnings.warn(message, stacklevel=level)


def _room(frame):
  """Returns the name of the package to which the code of a frame belongs."""
  return frame.f_globals.get('__name__', '').partition('.')[0]


def acceptance(trace, target, may_exceed_target=False, name='is_accepted'):
  """Yields a warning if the acceptance in a trace is far from `target`.

  Steps that were shortened on purpose are left out; see `core.short_steps`.
  """
  accepted = trace.get(name)
  is_short = np.asarray(trace.get('is_short', False))
  if accepted is not None and np.any(is_short):
    accepted = np.asarray(accepted)[~is_short]
  if accepted is None or np.size(accepted) < _FEWEST_DECISIONS:
    return
  rate = float(np.mean(accepted))
  is_above = rate > target and may_exceed_target
  if abs(rate - target) > _WIDEST_MISS and not is_above:
    yield (
      f'The learned proposal is accepted at {rate:.2f}, but the adaptation '
      f'aimed at {target:.2f}: it has not settled, and the draws may mix '
      'badly. Adapt longer; if the state is float32 and the target badly '
      'scaled, rounding of the log density is the usual reason: use float64.'
    )


def at_bounds(criterion, state, problem, accepted):
  """Yields a warning for each value of a criterion that ended at a bound."""
  traced = criterion.trace(state)
  # The entropy weight rises to its bound while the acceptance is above target.
  may_be_high = criterion.may_exceed_target and (
    accepted is not None and np.mean(accepted) > criterion.target_accept_prob
  )
  for name, (low, high) in criterion.bounds(problem).items():
    value, low, high = float(traced[name]), float(low), float(high)
    is_high = value >= high * 0.999 and not may_be_high
    if value <= low * 1.001 or is_high:
      yield (
        f'The adaptation ended with `{name}` at its bound ({value:.3g} in '
        f'[{low:.3g}, {high:.3g}]): the learned proposal is probably poor. If '
        'the state is float32 and the target badly scaled, rounding of the '
        'log density is the usual reason: use float64. Otherwise adapt longer.'
      )


def chain_names(indices):
  """Returns the names of at most ten chains and how many more there are."""
  names = ', '.join(chain_name(index) for index in indices[:_MOST_NAMES])
  more = len(indices) - _MOST_NAMES
  return names + (f' and {more} more' if more > 0 else '')


def chain_name(index):
  """Returns the name of the chain at an index, a sequence of ints."""
  index = tuple(int(i) for i in index)
  if not index:
    return 'the chain'
  return f'chain {index[0] if len(index) == 1 else index}'
