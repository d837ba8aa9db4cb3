"""`Posterior`, the result of `tfpa.sample_posterior`: draws and a verdict."""

import copy
import functools
import html
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import pandas
import tensorflow as tf
import tensorflow_probability as tfp

from tfp_adaptive import improper_uniform
from tfp_adaptive.core import arguments
from tfp_adaptive.driver import calling
from tfp_adaptive.driver import to_arviz
from tfp_adaptive.interfaces import types
from tfp_adaptive.posterior import plotted
from tfp_adaptive.posterior import predictive
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.judge import verdict as verdict_lib
from tfp_adaptive.posterior.model import constrained
from tfp_adaptive.posterior.model import data
from tfp_adaptive.posterior.model import kinds

# Some draws are moved away from the first draw by each of these factors.
_FACTORS = 4.0 ** np.arange(1, 21)
_NUM_BEYOND = 4
_MOST_ROWS = 10  # Rows of a printed table.
_COLUMN_WIDTH = 10  # Least width of a column, with its gap.
_COLUMNS = ('mean', 'sd', '5%', '95%', 'bulk', 'tail', 'R-hat')


class Stage(NamedTuple):
  """One line of the report: what was done and found, and its cost per chain."""

  name: str
  found: str
  num_gradients: float
  seconds: float

  def __str__(self):
    spent = f'{self.num_gradients:,.0f} gradients, {self.seconds:.1f} s'
    return f'{self.name:9} {spent:>28}  {self.found}'


class Report(list):
  """List of `Stage`, which prints one line for each."""

  def __repr__(self):
    return '\n'.join(map(str, self))


class Posterior:
  """Draws of a posterior, the verdict on them, and the sampler that made them.

  Attributes:
    states: Draws in the model's own structure and supports, numpy,
      [draws, chains, event...] each.
    unconstrained: The draws as vectors in unconstrained space, [draws, chains,
      d].
    trace: dict of [draws, chains]: `target_log_prob` in unconstrained space,
      `is_accepted`, `diverging`, ...
    diverging: Which draws had a diverging proposal, bool [draws, chains]. The
      verdict counts these. `trace['diverging']` counts log acceptance ratios of
      at most -1000 only. Of a thinned draw, the last steps count, as many as a
      draw takes that is not thinned.
    verdict: `judge.verdict.Verdict`: the checks, coordinate by coordinate.
    report: `Report`, a list of `Stage`: what was done and why, and the cost of
      each stage for each chain.
    thinning: Number of draws that the chains made for each that is kept.
    steps_per_draw: Steps of `kernel` from one draw to the next. A draw that is
      not thinned may take several short steps, which keep momenta.
    num_gradients: Gradients that each chain computed in all stages.
    ended_by: What ended the run before all checks passed, or ''.
  """

  def __init__(self, problem, chains, report, min_ess, ended_by=''):
    """Judges the draws of `Chains`. `sample_posterior` calls it."""
    self._problem, self._chains = problem, chains
    if chains.num_blocks:
      # The density is recorded now, before the user's program can change it.
      saved.record(problem, chains)
    self._min_ess, self.ended_by = min_ess, ended_by
    self.report = Report(report)
    count = chains.num_kept
    self.unconstrained = chains.draws[:count]
    self.trace = {name: rows[:count] for name, rows in chains.trace.items()}
    self.diverging = verdict_lib.is_diverging(self.trace)
    self.thinning = chains.thinning
    self.steps_per_draw = chains.steps_per_draw
    self.num_gradients = sum(stage.num_gradients for stage in report)
    with tf.device('/CPU:0'):
      self.states = constrained.constrained(problem, self.unconstrained)
    self._values = verdict_lib.coordinates(
      problem.names, tf.nest.flatten(self.states)
    )
    self.verdict = verdict_lib.judge(
      *self._values, self.trace, min_ess, chains.most_diverging
    )
    if not chains.is_settled:
      self.verdict.failed.clear()  # There are too few states for other checks.
    self.verdict.failed.extend(chains.failures)
    stuck = list(verdict_lib.stuck(problem.coordinates, self.unconstrained))
    stuck = stuck or list(self._rounded())
    self.verdict.failed.extend(stuck)
    self._is_unusable = bool(stuck) or chains.is_noisy
    self._is_unusable |= not np.all(np.isfinite(self._values[1]))

  @property
  def converged(self) -> bool:
    """Whether every check passed, for example R-hat, ESS and divergences."""
    return not self.verdict.failed

  @property
  def choice(self) -> str:
    """Name of the sampler's structure, for example 'dense matrix'."""
    return self._chains.choice.name

  @property
  def failed(self) -> list[str]:
    """Sentences, one for each check that failed."""
    return list(self.verdict.failed)

  @property
  def rounding_noise(self) -> float | None:
    """Rounding noise of the log density in nats, measured after adapting.

    It is `None` if the run ended before the measurement.
    """
    noise = self._chains.noise
    return None if noise is None else noise.nats

  @property
  def coordinate_names(self) -> list[str]:
    """Names of all coordinates, `theta[3]`, in the order of `summary`."""
    return list(self._values[0])

  @property
  def kernel(self) -> tfp.mcmc.TransitionKernel:
    """The learned sampler, frozen, for vectors in unconstrained space.

    Start it at `unconstrained[-1]`, and keep every `steps_per_draw`-th state;
    `constrain` maps its states back. The kernel tries no step again, so it
    reaches narrow regions less often than the draws do.
    """
    return self._chains.kernel

  def constrain(self, unconstrained: types.Structure) -> types.Structure:
    """Maps vectors [..., d] to the model's structure and supports."""
    return self._problem.constrain(unconstrained)

  def more(self, num_draws: int) -> 'Posterior':
    """Returns the posterior with more draws of each chain.

    Ctrl-C ends the call, which then returns the draws so far.

    Args:
      num_draws: A positive int, the number of draws to add to each chain. The
        thinning does not change.

    Raises:
      ValueError: If `num_draws` is not positive, or if the log density has
        changed since the draws were made.
    """
    calling.check('Posterior.more')
    arguments.check_count(num_draws, 'num_draws', 1000)
    if not self._chains.is_settled:
      raise ValueError(
        'The run was cut off in its warm-up, and its sampler still adapts. '
        'Call `sample_posterior` again with more time; with `checkpoint_dir` '
        'it resumes.'
      )
    saved.check_unchanged(self._problem, self._chains)
    chains = copy.copy(self._chains)
    before, seconds = chains.num_gradients, chains.seconds
    chains.extend_to(chains.num_kept + num_draws)
    ended_by = ''
    try:
      while not chains.is_full:
        chains.run_block()
    except KeyboardInterrupt:
      ended_by = 'the user'
    num_draws = chains.num_kept - self._chains.num_kept
    stage = Stage(
      'more',
      f'{num_draws} draws of each chain',
      chains.num_gradients - before,
      chains.seconds - seconds,
    )
    report = [*self.report, stage]
    return Posterior(self._problem, chains, report, self._min_ess, ended_by)

  def save(self, path: types.Path) -> None:
    """Writes draws, report and the learned sampler to one file.

    `tfpa.load_posterior(path, model, ...)` reads the file. The file does not
    hold the model, because the model is code.

    Args:
      path: The file, whose name usually ends in `.npz`. It is written whole or
        not at all. Its folder is created.

    Raises:
      OSError: If the file cannot be written.
    """
    saved.write(
      path,
      self._problem,
      self._chains,
      report=self.report,
      min_ess=self._min_ess,
      ended_by=self.ended_by,
    )

  def posterior_predictive(
    self, seed: types.Seed = 0, model: types.Model | None = None
  ) -> dict[str, types.Structure]:
    """Draws new data, once for each draw of the unknowns.

    Data are the parts that have values and depend on the unknowns. Other parts,
    such as covariates or a known scale, keep their values. So do parts on which
    an unknown depends. `tfd.Deterministic` parts are computed again.

    Args:
      seed: int or [2] int32.
      model: Another `tfd.JointDistribution` with the same unknowns, for example
        with other covariates. It may pin parts that are not data to other
        values. `None`: the model that was sampled.

    Returns:
      dict of name -> [draws, chains, ...], numpy: the data.

    Raises:
      ValueError: If a log density was sampled and no model is given, or if the
        model has other unknowns or no data.
    """
    calling.check('Posterior.posterior_predictive')
    model = self._joint() if model is None else model
    whole, pins = kinds.unpinned(model)[0], data.as_arrays(model)
    unknowns, computed = self._drawn(whole)
    problem = self._problem
    given = predictive.fixed(
      problem.model, unknowns, problem.observed, computed
    )
    given |= predictive.fixed(whole, unknowns, pins, computed)
    found = predictive.simulated(whole, unknowns, seed, given, computed)
    return self._unflat(found)

  def prior_predictive(
    self, num_draws: int = 500, seed: types.Seed = 0
  ) -> dict[str, types.Structure]:
    """Draws the unknowns from their prior, and data given these unknowns.

    Covariates and other parts keep their values as in `posterior_predictive`.

    Args:
      num_draws: Number of draws.
      seed: int or [2] int32.

    Returns:
      dict of name -> [num_draws, ...], numpy: the unknowns and the data.

    Raises:
      ValueError: If a log density was sampled, or if a prior is flat.
    """
    calling.check('Posterior.prior_predictive')
    arguments.check_count(num_draws, 'num_draws', 500)
    model = self._joint()
    if self._has_flat_prior:
      raise ValueError(
        'A flat prior has no draws. Give the `ImproperUniform` parts of the '
        'model a proper prior, for example `tfd.Normal(0.0, 10.0)`.'
      )
    unknowns, computed = self._drawn(model)
    given = predictive.fixed(model, unknowns, self._problem.observed, computed)
    return predictive.prior_draws(model, given, num_draws, seed)

  def log_likelihood(self) -> dict[str, np.ndarray]:
    """Returns the log density of the data for each draw of the unknowns.

    ArviZ's `loo` uses it for cross-validation.

    Returns:
      dict of name -> [draws, chains, ...], numpy: a log density for each number
      that the model draws independently, given the unknowns. Observed values
      that depend on no unknown, such as covariates, are left out.

    Raises:
      ValueError: If a log density was sampled, or the joint distribution has no
        data.
    """
    calling.check('Posterior.log_likelihood')
    model, unknowns = self._joint(), self._flat()
    observed = self._problem.observed
    drawn, _ = self._drawn(model)
    of = list(predictive.depending(model, drawn, observed))
    if not of:
      raise ValueError('No value depends on an unknown: there are no data.')
    inexact = self._problem.inexact
    found = predictive.log_likelihood(model, unknowns, observed, of, inexact)
    return self._unflat(found)

  @property
  def draws(self) -> types.DataTree:
    """The draws as an ArviZ `DataTree`, see `to_arviz`."""
    return self.to_arviz()

  def to_arviz(
    self,
    predictive: bool = False,
    coords: Mapping[str, Sequence] | None = None,
    dims: Mapping[str, Sequence[str]] | None = None,
  ) -> types.DataTree:
    """Returns the draws as an ArviZ `DataTree`.

    The groups are `posterior`, `sample_stats` (with `lp` in unconstrained
    space) and `observed_data`, the pinned values. Parts named `chain` and
    `draw` become `chain_` and `draw_`, because these are names of dimensions. A
    slash in a name becomes `_`.

    Args:
      predictive: Whether to add the groups posterior_predictive and
        log_likelihood, see the methods of these names. If no prior is flat, the
        groups prior and prior_predictive are added too.
      coords: dict of dimension -> its labels, in addition to the labels that
        `sample_posterior` received.
      dims: dict of name -> names of its dimensions, without chain and draw, in
        addition to the names that `sample_posterior` received.

    Raises:
      ValueError: See `posterior_predictive`.
    """
    observed = self._problem.observed
    names = to_arviz.allowed_names(observed)
    groups = dict(
      posterior=_variables(self.states, self._problem.names),
      sample_stats=to_arviz.sample_stats(self.trace),
      observed_data=dict(zip(names, tf.nest.flatten(observed))),
    )
    if predictive:
      groups['posterior_predictive'] = _variables(self.posterior_predictive())
      groups['log_likelihood'] = _variables(self.log_likelihood())
      if not self._has_flat_prior:
        groups |= self._prior_groups()
    return to_arviz.tree(
      groups,
      dict(
        converged=int(self.converged),
        verdict=self._headline(),
        heavy_tails=' '.join(self.verdict.doubts),
        report='\n'.join(map(str, self.report)),
        num_gradients=self.num_gradients,
        thinning=self.thinning,
      ),
      {**self._problem.coords, **(coords or {})},
      {**self._problem.dims, **(dims or {})},
    )

  def summary(self) -> pandas.DataFrame:
    """Returns moments, quantiles and diagnostics, a row for each coordinate.

    Rows are named as in `coordinate_names`. The columns bulk and tail are
    effective sample sizes, in draws.
    """
    values = np.asarray(self._values[1], np.float64)
    low, high = np.quantile(values, (0.05, 0.95), axis=(0, 1))
    diagnosis, size = self.verdict.diagnosis, values.shape[-1]
    columns = (
      values.mean(axis=(0, 1)),
      values.std(axis=(0, 1), ddof=1),
      low,
      high,
      diagnosis.ess_bulk[:size],
      diagnosis.ess_tail[:size],
      diagnosis.rhat[:size],
    )
    return pandas.DataFrame(
      dict(zip(_COLUMNS, columns)), index=self.coordinate_names
    )

  def table(self, max_rows: int = _MOST_ROWS) -> str:
    """Returns `summary` as text.

    Args:
      max_rows: Rows of the table. If there are more coordinates, the table
        shows the first rows and those of the largest R-hat.
    """
    columns = self.summary()
    rows = self._rows_to_show(columns, max_rows)
    is_heavy = dict(zip(('mean', 'sd'), self.verdict.tails.is_heavy[:, rows]))
    cells = [['', *(self.coordinate_names[row] for row in rows)]]
    for name in _COLUMNS:
      marks = np.where(is_heavy.get(name, np.zeros(len(rows), bool)), '*', '')
      values = (_cell(name, value) for value in columns[name].iloc[rows])
      cells.append([name, *map(''.join, zip(values, marks))])
    lines = _aligned(cells)
    if np.any(list(is_heavy.values())):
      lines.append('* the error is unknown, because tails are heavy')
    left = len(self.coordinate_names) - len(rows)
    if left:
      lines.append(f'and {left} more, see `summary()`')
    return '\n'.join(lines)

  def plot(self, max_rows: int = _MOST_ROWS) -> Any:
    """Plots estimates, ranks and traces in one figure.

    If chains agree, 99 % of their ranks stay inside the gray band.

    Args:
      max_rows: Rows of the figure. If there are more coordinates, the figure
        shows the first rows and those of the largest R-hat.

    Returns:
      The `arviz_plots.PlotCollection`; `.savefig(path)` writes it to a file.

    Raises:
      ImportError: If the extra `plots` is not installed.
    """
    arguments.check_count(max_rows, 'max_rows', 12)
    rows = self._rows_to_show(self.summary(), max_rows)
    names = [self.coordinate_names[row] for row in rows]
    return plotted.plotted(names, np.asarray(self._values[1])[..., rows])

  def _rounded(self):
    """Returns sentences on unknowns whose spread `states` do not show.

    Parts that are computed have no unconstrained coordinates.
    """
    unknowns = {name.split('[')[0] for name in self._problem.coordinates}
    names, values = self._values
    is_unknown = [name.split('[')[0] in unknowns for name in names]
    return verdict_lib.rounded(names, values, is_unknown, self._beyond)

  def _beyond(self):
    """Returns coordinates of `states` further and further out, [m, d]."""
    rows = self.unconstrained.reshape(-1, self.unconstrained.shape[-1])
    some = rows[np.linspace(0, len(rows) - 1, _NUM_BEYOND).astype(int)]
    points = rows[0] + _FACTORS[:, np.newaxis, np.newaxis] * (some - rows[0])
    try:
      with tf.device('/CPU:0'):
        far = constrained.constrained(self._problem, points.astype(rows.dtype))
    except Exception:  # The user's program may raise anything out there.
      return self._values[1][0, :1]
    _, values = verdict_lib.coordinates(
      self._problem.names, tf.nest.flatten(far)
    )
    return values.reshape(-1, values.shape[-1])

  def _prior_groups(self):
    """Returns the groups prior and prior_predictive."""
    drawn = self.prior_predictive()
    one_chain = tf.nest.map_structure(lambda x: x[:, np.newaxis], drawn)
    groups = dict(prior={}, prior_predictive={})
    unknowns = set(self._flat())
    for name, rows in one_chain.items():
      group = 'prior' if name in unknowns else 'prior_predictive'
      groups[group][name] = rows
    return {group: _variables(parts) for group, parts in groups.items()}

  def _rows_to_show(self, columns, max_rows):
    """Returns rows to show: the first rows and those of the largest R-hat."""
    rows = np.arange(len(columns))
    if len(rows) <= max_rows:
      return rows
    order = np.argsort(-np.nan_to_num(columns['R-hat'], nan=-np.inf))
    worst = order[: -(-max_rows // 2)]
    others = [row for row in rows if row not in worst]
    return np.sort([*worst, *others[: max_rows - len(worst)]])

  @functools.cached_property
  def _has_flat_prior(self):
    return improper_uniform.has_flat_part(self._problem.model)

  def _joint(self):
    """Returns the joint distribution that was sampled."""
    if self._problem.model is None:
      raise ValueError(
        'A log density was sampled, which cannot draw data. Pass a '
        '`tfd.JointDistribution` and its data to `sample_posterior`, or pass a '
        'joint distribution with the same unknowns to '
        '`posterior_predictive(model=...)`.'
      )
    return self._problem.model

  def _flat(self):
    """Returns dict of name -> [draws x chains, event...] of the parts."""
    names, parts = data.in_order(self.states)
    model, observed = self._problem.model, self._problem.observed
    if names is None and model is not None:
      every, _ = data.parts_and_events(model)
      names = [name for name in every if name not in observed]
    return {
      name: tf.nest.map_structure(
        lambda rows: rows.reshape(-1, *rows.shape[2:]), part
      )
      for name, part in zip(names or self._problem.names, parts)
    }

  def _drawn(self, model):
    """Returns `_flat` without computed parts, and the computed parts' names."""
    flat = self._flat()
    computed = data.computed(model) & set(flat)
    return {n: rows for n, rows in flat.items() if n not in computed}, computed

  def _unflat(self, found):
    shape = self.unconstrained.shape[:2]
    return tf.nest.map_structure(
      lambda rows: rows.reshape(*shape, *rows.shape[1:]), found
    )

  @property
  def _advice(self):
    if not self._chains.is_settled:
      return 'give it more time; with `checkpoint_dir` the same call resumes'
    advice = self.verdict.advice(self._is_unusable)
    if self.verdict.disagrees and self._has_flat_prior:
      return (
        'check that the data determine every unknown with a flat prior. If '
        f'they do: {advice}'
      )
    return advice

  def _headline(self):
    num_draws, num_chains, size = self.unconstrained.shape
    word = 'Converged' if self.converged else 'NOT CONVERGED'
    return (
      f'{word}: {num_draws} draws of {num_chains} chains, '
      f'{size} coordinate{"s" if size > 1 else ""}'
    )

  def __reduce__(self):
    raise TypeError(
      'A posterior holds compiled programs and cannot be pickled. Write '
      '`posterior.save(path)`, and `tfpa.load_posterior(path, model, ...)` to '
      'read it; `posterior.draws` is a `DataTree`, which can be pickled.'
    )

  def _repr_html_(self):
    """Returns the HTML for a notebook: the verdict, a table, the stages."""
    columns = self.summary()
    rows = self._rows_to_show(columns, _MOST_ROWS)
    formatters = {name: functools.partial(_cell, name) for name in _COLUMNS}
    left = len(columns) - len(rows)
    paragraphs = [f'<b>{html.escape(self._headline())}</b>']
    paragraphs += map(html.escape, self._what_failed())
    table = columns.iloc[rows].to_html(formatters=formatters, border=0)
    more = f'<p>and {left} more, see <code>summary()</code></p>' if left else ''
    stages = html.escape(repr(self.report))
    return (
      f'{"".join(f"<p>{line}</p>" for line in paragraphs)}{table}{more}'
      f'<p>{html.escape(self._cost())}</p>'
      f'<details><summary>How it was sampled</summary><pre>{stages}</pre>'
      '</details>'
    )

  def __repr__(self):
    lines = [self._headline(), *self._what_failed()]
    if self._chains.is_settled:
      lines += ['', self.table(), '']
    return '\n'.join([*lines, self._cost()])

  def _what_failed(self):
    """Returns sentences on what failed or is in doubt, and on what to do."""
    lines = [f'failed: {sentence}' for sentence in self.verdict.failed]
    lines += [f'heavy tails: {sentence}' for sentence in self.verdict.doubts]
    narrow = self.verdict.narrow
    lines += [f'narrow regions: {narrow}'] if narrow else []
    if self.ended_by:
      lines.append(f'ended by {self.ended_by}')
    if not self.converged:
      lines.append(f'next: {self._advice}')
    return lines

  def _cost(self):
    """Returns a line on the cost of the draws, and on where to read more."""
    seconds = sum(stage.seconds for stage in self.report)
    return (
      f'{self.num_gradients:,.0f} gradients per chain, {seconds:.1f} s, '
      f'{self.choice}; stages: `posterior.report`'
    )


def _variables(states, names=None):
  """Returns dict of name -> [chains, draws, ...], named as ArviZ allows."""
  names = to_arviz.allowed_names(states, names)
  return to_arviz.variables(states, 1, names)


def _cell(column, value):
  """Returns the text of a cell of the table."""
  if column in ('bulk', 'tail'):
    return f'{value:.0f}'
  return f'{value:.3f}' if column == 'R-hat' else f'{value:.4g}'


def _aligned(columns):
  """Returns lines of text from columns, each as wide as its widest cell."""
  names, *others = columns
  width = max(map(len, names))
  widths = [max(_COLUMN_WIDTH, 2 + max(map(len, c))) for c in others]
  return [
    name.ljust(width) + ''.join(c.rjust(w) for c, w in zip(cells, widths))
    for name, *cells in zip(names, *others)
  ]
