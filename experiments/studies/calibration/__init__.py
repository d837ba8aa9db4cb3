"""Are the kernels exact? Ranks of simulated truths, and Geweke's joint test.

A case is a kernel of the library, which must pass both tests, or a kernel that
is broken on purpose and must fail. A kernel is frozen after a pilot run on
other data sets, pooled over its chains. With any params, a right kernel leaves
each posterior invariant. Adapting steps are not tested. The p-value of a test
is the smallest p-value of the model's quantities, times their number.
"""

import pathlib
import sys
import time
import zlib
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
from scipy import stats

from experiments.papers import tables
from experiments.run.store import Record
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.studies.calibration import broken
from experiments.studies.calibration import chains
from experiments.studies.calibration import geweke
from experiments.studies.calibration import kernels
from experiments.studies.calibration import models
from experiments.studies.calibration import rank_test

# Probability that some kernel of the library fails although all are right.
FALSE_ALARM_RATE = 0.01
# A control counts as caught if a right kernel has this p-value or less.
CAUGHT_BELOW = 1e-6
# Fewer data sets, as with `--smoke`, have no power.
_LEAST_CHAINS = 100
_HEADER = (
  *('Kernel', 'Model', 'Steps that move', 'Ranks: p', 'at', 'Geweke: p'),
  *('at (z)', 'Verdict', 'Power'),
)


class _Case(NamedTuple):
  """A kernel: its name, its family, and how it is broken, or `None`."""

  label: str
  family: str
  spoil: Callable | None = None


def _cases(sizes: chains.Sizes) -> dict[str, _Case]:
  """Returns {'kernel | model': case}, each family before its controls."""
  del sizes
  found = {}
  for name, family in kernels.FAMILIES.items():
    own = [_Case(name, name)]
    own += [
      _Case(label, name, control.spoil)
      for label, control in broken.CONTROLS.items()
      if control.family == name
    ]
    model = family.model().name
    found.update({f'{case.label} | {model}': case for case in own})
  return found


def _run(case: _Case, seed: int, work: Work) -> dict[str, Any]:
  """Returns p-values by quantity, counts of ranks, and power for controls."""
  sizes, family = work.settings, kernels.FAMILIES[case.family]
  start = time.perf_counter()
  model, make = kernels.learn(family, _seed(case.family, seed))
  seconds = time.perf_counter() - start
  spoil = case.spoil or (lambda kernel: kernel)
  record = {
    'is_control': case.spoil is not None,
    'sizes': sizes.model_dump(),
    'pilot_seconds': seconds,
    **examine(
      model,
      lambda data: spoil(make(data)),
      sizes,
      family.thinning,
      _seed(case.label, seed),
    ),
  }
  return {**record, 'power': power(record)} if case.spoil else record


def _seed(name, seed):
  """Returns a different seed for each kernel, so that rows are independent."""
  return zlib.crc32(f'{name}/{seed}'.encode()) % 2**24


def examine(
  model: models.Model,
  make: Callable,
  sizes: chains.Sizes,
  thinning: int,
  seed: int,
) -> dict[str, Any]:
  """Returns the results of both tests for one kernel.

  Args:
    make: Function from data to a kernel that adapts nothing.
  """
  start = time.perf_counter()
  ranks = chains.draw_ranks(model, make, sizes, thinning, seed)
  middle = time.perf_counter()
  averages = chains.run_successive(model, make, sizes, seed + 1)
  z = geweke.z_scores(averages.marginal, averages.successive)
  by_rank = {
    name: float(rank_test.p_value(found, sizes.num_ranks))
    for name, found in ranks.items()
  }
  return {
    'thinning': thinning,
    'move_share': averages.move_share,
    'rank_p_values': by_rank,
    'geweke_z_scores': {
      f'{name}, {shape}': float(score)
      for shape, scores in zip(geweke.SHAPES, z)
      for name, score in zip(averages.names, scores)
    },
    'rank_p': min(1.0, len(by_rank) * min(by_rank.values())),
    'geweke_p': min(1.0, z.size * float(np.min(geweke.p_values(z)))),
    'rank_counts': {
      name: np.bincount(found, minlength=sizes.num_ranks).tolist()
      for name, found in ranks.items()
    },
    'rank_seconds': middle - start,
    'geweke_seconds': time.perf_counter() - middle,
  }


def limit(rows: Sequence[Mapping[str, Any]]) -> float:
  """Returns the p-value below which a kernel of the library fails a test."""
  num_tests = 2 * sum(not row['is_control'] for row in rows)
  return FALSE_ALARM_RATE / max(num_tests, 1)


def verdict(row: Mapping[str, Any], lowest: float) -> tuple[str, bool]:
  """Returns the verdict of a row, and whether the verdict is as expected."""
  smallest = min(row['rank_p'], row['geweke_p'])
  if row['is_control']:
    return ('caught', True) if smallest < CAUGHT_BELOW else ('missed', False)
  return ('passes', True) if smallest >= lowest else ('FAILS', False)


def power(row: Mapping[str, Any], num_draws: int = 100) -> tuple[float, float]:
  """Returns how often tests like these would catch a kernel like this.

  The observed effects are taken for the true ones. z-scores are drawn around
  the observed scores, and ranks from their frequencies. A kernel is caught if
  p < `CAUGHT_BELOW`.

  Returns:
    Power of the ranks and of Geweke's test, each by its best single quantity.
  """
  z = np.abs(list(row['geweke_z_scores'].values()))
  needed = stats.norm.isf(0.5 * CAUGHT_BELOW / len(z))
  by_average = np.max(stats.norm.sf(needed - z))

  p_values = row['rank_p_values']
  counts = np.array(row['rank_counts'][min(p_values, key=p_values.get)])
  num, num_ranks = counts.sum(), len(counts)
  rng = np.random.default_rng(0)
  drawn = (
    rng.choice(num_ranks, size=num, p=counts / num) for _ in range(num_draws)
  )
  needed = CAUGHT_BELOW / len(p_values)
  by_rank = np.mean([rank_test.p_value(d, num_ranks) < needed for d in drawn])
  return float(by_rank), float(by_average)


def to_markdown(rows: Mapping[str, Mapping[str, Any]]) -> str:
  """Returns the table of p-values and the quantities that have the least."""
  lowest = limit(list(rows.values()))
  lines = []
  for case, row in sorted(rows.items(), key=lambda pair: pair[1]['is_control']):
    kernel, model = case.split(' | ')
    p_values, scores = row['rank_p_values'], row['geweke_z_scores']
    at = max(scores, key=lambda name: abs(scores[name]))
    lines.append(
      [
        kernel + (' (broken)' if row['is_control'] else ''),
        model,
        f'{row["move_share"]:.2f}',
        f'{row["rank_p"]:.2g}',
        min(p_values, key=p_values.get).replace('_', ' '),
        f'{row["geweke_p"]:.2g}',
        f'{at.replace("_", " ")} ({scores[at]:.1f})',
        verdict(row, lowest)[0],
        ', '.join(f'{share:.2f}' for share in row.get('power', ())),
      ]
    )
  return tables.table(_HEADER, lines) + '\n'


def _finished(records: list[Record]) -> dict[str, dict[str, Any]]:
  return {r.case: r.record for r in records if r.status == 'finished'}


def _finish(folder: pathlib.Path, records: list[Record], work: Work) -> None:
  """Prints the table, and ends with an error if a verdict is wrong."""
  del folder
  sizes = work.settings
  rows = _finished(records)
  print(to_markdown(rows))
  lowest = limit(list(rows.values()))
  wrong = [
    case
    for case, row in rows.items()
    if sizes.num_chains >= _LEAST_CHAINS and not verdict(row, lowest)[1]
  ]
  if wrong:
    sys.exit(
      f'Right kernels that fail, or broken kernels that pass: '
      f'{"; ".join(wrong)}.'
    )


STUDY = Study(
  _cases,
  _run,
  chains.Sizes,
  render=lambda records: to_markdown(_finished(records)),
  finish=_finish,
)
