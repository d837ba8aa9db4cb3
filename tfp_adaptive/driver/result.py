"""`SampleResult`, the result of `tfpa.sample`: draws, learned values, cost."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive import interfaces
from tfp_adaptive.core import kernel_base
from tfp_adaptive.core import stack
from tfp_adaptive.driver import diagnosis
from tfp_adaptive.driver import to_arviz
from tfp_adaptive.driver.lazy_draws import LazyDraws
from tfp_adaptive.interfaces import types


class SampleResult(NamedTuple):
  """The result of `sample`; arrays are numpy, in main memory.

  With `draws_dir` the arrays of `states`, `trace` and `adaptation_trace` are on
  disk. Read slices of them: `result.states[100:200]`. `np.asarray` reads all
  draws. `np.mean` and `np.any` read them block by block.

  A result prints three lines: what ran, what it cost, and the worst coordinate.

  Attributes:
    states: Draws, [num_results, chains..., event...] in the structure of the
      start.
    trace: dict of arrays. `target_log_prob`, `is_accepted`, `log_accept_ratio`
      and `diverging`, if the kernel has them, are [num_results, chains...].
      Scalars of the adaptation are [num_results]. `extra` is the result of
      `trace_fn`.
    adaptation_trace: The trace of the discarded steps.
    final_state: Last state, Tensors.
    final_kernel_results: Last kernel results, Tensors: what was learned.
    seconds: dict of wall times `compile`, `adaptation`, `sampling`. `compile`
      does not include checks of a folder. The times of a resumed run include
      those before it was cut off.
    run: dict of facts about the run: `kernel`, its name; the numbers of steps
      `num_discarded`, `num_adaptation_steps` and `steps_per_result`;
      `num_gradients` of each chain, adaptation included, `None` if unknown;
      `log_prob`, the meaning of `target_log_prob`: `lp`, or `log_likelihood` if
      the prior is separate;
      `worst`, dict of `rhat`, `ess_bulk`, `ess_tail`, `ess_moments` -> (value,
      coordinate), empty for fewer than 100 draws; `worst_of_every`, the
      thinning of the draws that gave `worst`, 1 unless there are very many.
  """

  states: types.Structure
  trace: dict[str, Any]
  adaptation_trace: dict[str, Any]
  final_state: types.Structure
  final_kernel_results: Any
  seconds: dict[str, float]
  run: dict[str, Any]

  def to_arviz(
    self, names: str | Sequence[str] | None = None
  ) -> types.DataTree:
    """Returns the draws as an ArviZ `DataTree`; several chain axes become one.

    The group `posterior` has the draws. `sample_stats` has the trace with
    ArviZ's names (`lp`, `acceptance_rate`, `accepted`, `diverging`), and those
    parts of `extra` that have a number for each chain. Attributes give kernel,
    steps and seconds. Draws on disk are read only when they are used.

    Args:
      names: Names of the parts of the state, in the order of `tf.nest.flatten`,
        or a str if there is one part. `None`: keys of a dict, fields of a
        namedtuple, else `x`, or `x0`, `x1`, ...

    Raises:
      ValueError: If `names` do not fit, or the kernel's results do not show
        which axes are chains.
    """
    if self._num_chain_dims is None:
      raise ValueError(
        f'{self.run["kernel"]} has no `target_log_prob` in its results, so '
        'which axes are chains is not known. Give `states` to '
        '`arviz_base.from_dict` with the chains first.'
      )
    described = dict(
      attributes(self.run),
      sampling_time=self.seconds['sampling'],
      adaptation_time=self.seconds['adaptation'],
      compile_time=self.seconds['compile'],
    )
    if isinstance(tf.nest.flatten(self.states)[0], LazyDraws):
      return to_arviz.opened(self.states, described, names)
    return to_arviz.tree(
      dict(
        posterior=to_arviz.variables(self.states, self._num_chain_dims, names),
        sample_stats=to_arviz.sample_stats(self.trace, self.run['log_prob']),
      ),
      described,
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
      size = sum(np.prod(part.shape[1:], dtype=int) for part in parts)
      size //= max(1, num_chains)
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
    worst, every = self.run['worst'], self.run.get('worst_of_every', 1)
    of_every = f', from one draw in {every}' if every > 1 and worst else ''
    said = ', '.join(
      f'{text} {worst[field][0]:{form}} ({worst[field][1]})'
      for field, text, form in words
      if field in worst
    )
    return said + of_every


def describe_plan(kernel, plan):
  """Returns the part of `describe_run` that is known before the run."""
  return dict(
    kernel=_name(kernel),
    num_discarded=plan.num_discarded,
    num_adaptation_steps=_num_adapting(kernel, plan),
    steps_per_result=plan.steps_per_result,
    log_prob='log_likelihood' if diagnosis.has_prior_apart(kernel) else 'lp',
  )


def describe_run(kernel, plan, results, worst, worst_of_every):
  """Returns the dict `run` of a `SampleResult`: plain numbers and strings."""
  num_adapting = _num_adapting(kernel, plan)
  counts = (num_adapting, plan.num_steps - num_adapting)
  return dict(
    describe_plan(kernel, plan),
    num_gradients=_num_gradients(kernel, results, *counts),
    worst=worst,
    worst_of_every=worst_of_every,
  )


def attributes(run):
  """Returns the attributes of a `DataTree` from one of the dicts above."""
  return dict(
    kernel=run['kernel'],
    tuning_steps=run['num_adaptation_steps'],
    num_discarded=run['num_discarded'],
    steps_per_result=run['steps_per_result'],
    num_gradients=run.get('num_gradients'),
  )


def _num_adapting(kernel, plan):
  return min(stack.num_adaptation_steps(kernel), plan.num_discarded)


def _name(kernel):
  """Returns the names of the proposal and its wrappers, innermost first."""
  names = [
    name.removeprefix('Uncalibrated')
    for name in reversed(diagnosis.kernel_names(kernel))
    if name != 'MetropolisHastings'
  ]
  return ' in '.join(dict.fromkeys(names)) or 'MetropolisHastings'


def _num_gradients(kernel, results, num_adapting, num_frozen):
  """Returns the gradients of each chain, `None` if the kernel has no count."""
  total = 0.0
  for count, is_adapting in ((num_adapting, True), (num_frozen, False)):
    kind = kernel_base.StepKind(is_adapting)
    cost = stack.cost(kernel, results, kind) if count else interfaces.Cost()
    if cost is None or cost.gradient is None:
      return None
    total += count * cost.gradient
  return float(total)
