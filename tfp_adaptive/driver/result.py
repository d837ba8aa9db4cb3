"""What `tfpa.sample` returns: draws, what was learned, and what it cost."""

import collections
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tfp_adaptive import learned
from tfp_adaptive.core import stack
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import to_arviz
from tfp_adaptive.interfaces import types

__all__ = ['SampleResult', 'describe_run']


class SampleResult(
  collections.namedtuple(
    'SampleResult',
    [
      'states',
      'trace',
      'adaptation_trace',
      'final_state',
      'final_kernel_results',
      'seconds',
      'run',
    ],
  )
):
  """What `sample` returns; arrays are numpy, on the host.

  Echoed, it is three lines: what ran, what it cost, and the coordinate that is
  known worst.

  Attributes:
    states: Draws, [num_results, chains..., event...] in the structure of the
      start.
    trace: dict of [num_results, chains...]: `target_log_prob`, `is_accepted`,
      `log_accept_ratio`, `diverging`, those that the kernel has; [num_results]
      scalars of the adaptation; and `extra`, what `trace_fn` returned.
    adaptation_trace: The same over the discarded steps.
    final_state: Last state, Tensors.
    final_kernel_results: Last kernel results, Tensors: what was learned.
    seconds: dict of wall times `compile`, `adaptation`, `sampling`; those of
      a run that was continued from a checkpoint add up.
    run: dict of what was run: `kernel`, its name; `num_discarded`, steps;
      `num_adaptation_steps`, of these; `steps_per_result`; `num_gradients` of
      each chain, `None` if the kernel does not tell; `log_prob`, what
      `target_log_prob` is, `lp` or `log_likelihood` where a prior is apart;
      `worst`, dict of `rhat`, `ess_bulk`, `ess_tail`, `ess_moments` -> (value,
      coordinate), empty of fewer than 100 draws.
  """

  __slots__ = ()

  def to_arviz(
    self, names: str | Sequence[str] | None = None
  ) -> types.DataTree:
    """Returns the draws as an ArviZ `DataTree`; several chain axes as one.

    Groups: `posterior`; `sample_stats`, the trace by ArviZ's names (`lp`,
    `acceptance_rate`, `accepted`, `diverging`), of `extra` what has a number
    for each chain. Attributes tell of kernel, steps and seconds.

    Args:
      names: Of the parts of the state, in the order of `tf.nest.flatten`, or a
        str of a state of one part. Default: keys of a dict, fields of a
        namedtuple, else `x`, or `x0`, `x1`, ...

    Raises:
      ImportError: Without `arviz-base`; `states` needs nothing.
      ValueError: If `names` do not fit, or the kernel does not tell which axes
        are chains.
    """
    if self._num_chain_dims is None:
      raise ValueError(
        f'{self.run["kernel"]} has no `target_log_prob` in its results, so '
        'which axes are chains is not known. Give `states` to '
        '`arviz_base.from_dict` with the chains first.'
      )
    run = self.run
    return to_arviz.tree(
      dict(
        posterior=to_arviz.variables(self.states, self._num_chain_dims, names),
        sample_stats=to_arviz.sample_stats(self.trace, run['log_prob']),
      ),
      dict(
        kernel=run['kernel'],
        sampling_time=self.seconds['sampling'],
        adaptation_time=self.seconds['adaptation'],
        compile_time=self.seconds['compile'],
        tuning_steps=run['num_adaptation_steps'],
        num_discarded=run['num_discarded'],
        steps_per_result=run['steps_per_result'],
        num_gradients=run['num_gradients'],
      ),
    )

  @property
  def _num_chain_dims(self):
    log_prob = self.trace.get('target_log_prob')
    return None if log_prob is None else log_prob.ndim - 1

  def __repr__(self):
    return '\n  '.join(
      filter(None, [self._what(), self._cost(), self._worst()])
    )

  def _what(self):
    parts = tf.nest.flatten(self.states)
    shapes = ', '.join(str(list(part.shape[1:])) for part in parts[:4])
    what = f'{len(parts[0])} draws of {shapes}'
    if self._num_chain_dims is not None:
      num_chains = int(np.prod(self.trace['target_log_prob'].shape[1:]))
      size = sum(part[0].size for part in parts) // max(1, num_chains)
      what = (
        f'{len(parts[0])} draws x {num_chains} chain(s) x {size} coordinate(s)'
      )
    return f'{self.run["kernel"]}: {what}'

  def _cost(self):
    accepted = self.trace.get('is_accepted')
    gradients = self.run['num_gradients']
    spent = [
      accepted is not None and f'accepted {np.mean(accepted):.2f}',
      gradients is not None and f'{gradients:,.0f} gradients of each chain',
      *(f'{name} {seconds:.1f} s' for name, seconds in self.seconds.items()),
    ]
    return ', '.join(filter(None, spent))

  def _worst(self):
    words = (('rhat', 'R-hat at most', '.3f'), ('ess_bulk', 'bulk ESS', '.0f'))
    words += (('ess_tail', 'tail ESS', '.0f'),)
    worst = self.run['worst']
    return ', '.join(
      f'{text} {worst[field][0]:{form}} ({worst[field][1]})'
      for field, text, form in words
      if field in worst
    )


def describe_run(kernel, plan, results, worst):
  """Returns the dict `run` of a `SampleResult`: plain numbers and words.

  Args:
    kernel: The kernel.
    plan: Counts of steps: `num_discarded`, `num_results`, `steps_per_result`.
    results: Its last results.
    worst: As of `diagnosis.worst_coordinates`.
  """
  num_adapting = min(diagnosis.num_adaptation_steps(kernel), plan.num_discarded)
  counts = (num_adapting, plan.num_steps - num_adapting)
  return dict(
    kernel=_name(kernel),
    num_discarded=plan.num_discarded,
    num_adaptation_steps=num_adapting,
    steps_per_result=plan.steps_per_result,
    num_gradients=_num_gradients(kernel, results, *counts),
    log_prob='log_likelihood' if diagnosis.has_prior_apart(kernel) else 'lp',
    worst=worst,
  )


def _name(kernel):
  """Returns the proposal and what tunes it, innermost first."""
  names = [
    name.removeprefix('Uncalibrated')
    for name in reversed(diagnosis.kernel_names(kernel))
    if name != 'MetropolisHastings'
  ]
  return ' in '.join(dict.fromkeys(names)) or 'MetropolisHastings'


def _num_gradients(kernel, results, num_adapting, num_frozen):
  """Returns the gradients that each chain took, `None` if nobody counts."""
  if stack.first_with(kernel, 'cost') is None:
    return None
  costs = [
    (count, learned.cost_per_step(kernel, is_adapting, results).gradient)
    for count, is_adapting in ((num_adapting, True), (num_frozen, False))
    if count
  ]
  if any(cost is None for _, cost in costs):
    return None
  return float(sum(count * cost for count, cost in costs))
