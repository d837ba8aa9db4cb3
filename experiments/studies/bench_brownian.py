"""Gradients per effective draw on the gym's 32-dimensional Brownian motion.

  python -m experiments.studies.bench_brownian [--only LABEL] [--num-repeats 3]

Every method runs with its defaults from the same ten starts, N(0, 1). Gradients
and the smallest effective sample size are those of the sampling alone, by
`experiments.framework.diagnostics` for all; means are judged by their exact
values. Rows are appended to a file of JSON lines, so an interrupted run goes
on, and the table is printed from all of them. The peers in JAX need the
optional extra: pip install '.[peers]'.
"""

import argparse
import pathlib

import numpy as np

from experiments.framework import cell
from experiments.framework import config as configs
from experiments.framework import runner
from experiments.framework.json_files import append_lines
from experiments.framework.json_files import read_lines
from experiments.studies.panel import brownian
from experiments.targets.base import BuildContext

__all__ = ['build_target', 'config_values', 'measure', 'table']

_TARGET = {
  'name': 'BrownianMotionUnknownScalesMissingMiddleObservations',
  # The same density and order, written as one distribution: compiles faster.
  'use_markov_chain': True,
}
_NUTS_COUNTS = {'num_adaptation_steps': 1000, 'num_results': 1000}
_ADAPTATIONS = (5000, 10_000, 20_000)
_NUM_MALA_RESULTS = 10_000
_RESULTS_FILE = pathlib.Path('docs/results/brownian_motion.jsonl')


def config_values():
  """Returns the experiment as a config's values."""
  peers = [
    {'name': 'snaper_hmc'},
    {'name': 'numpyro_nuts', 'mass_matrix': 'dense'},
    {'name': 'blackjax_nuts', 'mass_matrix': 'dense'},
    {'name': 'blackjax_nuts', 'mass_matrix': 'diagonal'},
    {'name': 'windowed_nuts'},
    {'name': 'nutpie', 'mass_matrix': 'low_rank'},
    {'name': 'nutpie', 'mass_matrix': 'diagonal'},
  ]
  structures = {'dense': {}, 'arrow': {'preconditioner': 'arrow'}}
  own = [
    {
      'name': 'gadmala_fast',
      'label': f'gadMALAf, {structure}, {num_steps} adaptation steps',
      'num_adaptation_steps': num_steps,
      'num_results': _NUM_MALA_RESULTS,
      **constants,
    }
    for structure, constants in structures.items()
    for num_steps in _ADAPTATIONS
  ]
  # Others of the library that learn a dense factor of MALA.
  own += [
    {
      'name': name,
      'label': f'{label}, dense, 10000 adaptation steps',
      'num_adaptation_steps': 10_000,
      'num_results': _NUM_MALA_RESULTS,
    }
    for name, label in (
      ('gadmala_exact', 'gadMALAe'),
      ('fisher_mala', 'FisherMALA'),
      ('fisher_divergence_mala', 'Fisher-divergence MALA'),
    )
  ]
  one_size = [
    {
      **entry,
      'label': f'{entry["label"]}, short_step_share 0',
      'short_step_share': 0.0,
    }
    for entry in own
  ]
  return {
    'name': 'brownian_motion',
    'target': _TARGET,
    'methods': own + one_size + peers,
    'num_chains': 10,
    **_NUTS_COUNTS,
  }


def build_target(config):
  """Returns the target with its exact moments."""
  target = config.target.build(BuildContext(config.dtype))
  return target._replace(ground_truth=_exact_truth())


def measure(config, index, num_repeats):
  """Yields one row for every repeat of a method.

  Args:
    config: the `Config`.
    index: of the method in it.
    num_repeats: runs with other seeds and starts.
  """
  one = config.model_copy(update={'methods': [config.methods[index]]})
  plan = runner.make_plan(one)
  target = build_target(config)
  for repeat in range(num_repeats):
    result = cell.run_cell(
      one, 0, plan.methods[0], target, repeat, None, progress=False
    )
    record = result.record
    calls = record['calls']
    yield {
      'label': record['label'],
      'repeat': repeat,
      'gradients': calls['sampling']['gradient'],
      'adaptation_gradients': calls['adaptation']['gradient'],
      'min_ess': record['ess']['min'],
      'median_ess': record['ess']['median'],
      'rhat_max': record['rhat_max'],
      'worst_mean_z': max(
        abs(moments['worst_mean_z']) for moments in record['moments'].values()
      ),
      'seconds': record['seconds'],
    }


def _exact_truth():
  """Returns a target's `ground_truth`; the gym's own is not of its density."""
  moments = brownian.exact_moments()
  parts = [
    np.asarray(moments[name])
    for name in ('mean', 'deviation', 'standard_error')
  ]
  return {
    'innovation_noise_scale': tuple(part[0] for part in parts),
    'locs': tuple(part[1:-1] for part in parts),
    'observation_noise_scale': tuple(part[-1] for part in parts),
  }


def table(rows):
  """Returns the rows as lines of Markdown, one for each method."""
  lines = [
    '| Method | Gradients per min ESS | ... per median ESS | '
    'Gradients, adapting | min ESS | largest R-hat | worst z | compile s | '
    'adapt s | sample s |',
    '|---|---|---|---|---|---|---|---|---|---|',
  ]
  for label in dict.fromkeys(row['label'] for row in rows):
    of_label = [row for row in rows if row['label'] == label]
    lines.append('| ' + ' | '.join([label, *_cells(of_label)]) + ' |')
  return lines


def _cells(rows):
  """Returns medians over repeats; of the first number with its range."""
  ratios = [row['gradients'] / row['min_ess'] for row in rows]

  def median(value):
    return float(np.median([value(row) for row in rows]))

  return [
    f'{np.median(ratios):.0f} ({min(ratios):.0f}–{max(ratios):.0f})',
    f'{median(lambda row: row["gradients"] / row["median_ess"]):.0f}',
    f'{median(lambda row: row["adaptation_gradients"]):,.0f}',
    f'{median(lambda row: row["min_ess"]):.0f}',
    f'{max(row["rhat_max"] for row in rows):.3f}',
    _worst_z(rows),
    # Repeats compile nothing anew.
    f'{max(row["seconds"]["compile"] for row in rows):.1f}',
    f'{median(lambda row: row["seconds"]["adaptation"]):.1f}',
    f'{median(lambda row: row["seconds"]["sampling"]):.1f}',
  ]


def _worst_z(rows):
  scores = [row['worst_mean_z'] for row in rows]
  # Rows of an earlier form of this file were judged by the gym's own moments.
  return '–' if None in scores else f'{np.median(scores):.1f}'


def _main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument('--only', help='methods whose label holds this')
  parser.add_argument('--num-repeats', type=int, default=3)
  parser.add_argument('--rows', type=pathlib.Path, default=_RESULTS_FILE)
  given = parser.parse_args()
  config = configs.parse_config(config_values())
  rows = read_lines(given.rows)
  done = {row['label'] for row in rows}
  for index, label in enumerate(config.labels()):
    if label in done or (given.only and given.only not in label):
      continue
    # A method's repeats are kept only together.
    new = list(measure(config, index, given.num_repeats))
    append_lines(given.rows, *new)
    rows += new
  print('\n'.join(table(rows)))


if __name__ == '__main__':
  _main()
