"""The study: every family must pass both tests, every control must fail.

A row is one kernel. Its p-value in a test is the smallest of those of the
quantities, times their number.
"""

import time
import zlib

import numpy as np

from experiments.calibration import broken
from experiments.calibration import chains
from experiments.calibration import geweke
from experiments.calibration import kernels
from experiments.calibration import rank_test

__all__ = ['examine', 'measure']


def measure(names=None, sizes=None, seed=0, jit_compile=False, report=print):
  """Tests families and the controls that are made of them.

  Args:
    names: Of `kernels.FAMILIES`; None: all.
    sizes: A `chains.Sizes`.
    seed: An int, of the whole study.
    jit_compile: Whether XLA compiles the runs.
    report: Called with one line per row.

  Returns:
    List of dicts, as of `examine`.
  """
  sizes = sizes or chains.Sizes()
  rows = []
  for name in names or kernels.FAMILIES:
    family = kernels.FAMILIES[name]
    start = time.perf_counter()
    model, make = kernels.learn(family, _seed(name, seed), jit_compile)
    seconds = time.perf_counter() - start
    candidates = {name: (lambda kernel: kernel, False)}
    for label, control in broken.CONTROLS.items():
      if control.family == name:
        candidates[label] = (control.spoil, True)
    for label, (spoil, is_control) in candidates.items():
      row = examine(
        model,
        _spoiled(spoil, make),
        sizes,
        family.thinning,
        _seed(label, seed),
        jit_compile,
      )
      rows.append(
        dict(row, kernel=label, is_control=is_control, pilot_seconds=seconds)
      )
      report(_line(rows[-1]))
  return rows


def examine(model, make, sizes, thinning, seed, jit_compile=False):
  """Runs both tests of one kernel.

  Args:
    model: A `models.Model`.
    make: data -> a kernel that adapts nothing.
    sizes: A `chains.Sizes`.
    thinning: Steps between two states of a window.
    seed: An int.
    jit_compile: Whether XLA compiles the runs.

  Returns:
    dict of what `verdicts` needs: p-values by quantity, counts of ranks.
  """
  start = time.perf_counter()
  ranks = chains.draw_ranks(model, make, sizes, thinning, seed, jit_compile)
  middle = time.perf_counter()
  averages = chains.run_successive(model, make, sizes, seed + 1, jit_compile)
  z = geweke.z_scores(averages.marginal, averages.successive)
  by_rank = {
    name: rank_test.p_value(found, sizes.num_ranks)
    for name, found in ranks.items()
  }
  by_average = {
    f'{name}, {shape}': float(score)
    for shape, scores in zip(geweke.SHAPES, z)
    for name, score in zip(averages.names, scores)
  }
  return dict(
    model=model.name,
    thinning=thinning,
    move_share=averages.move_share,
    rank_p_values={name: float(p) for name, p in by_rank.items()},
    geweke_z_scores=by_average,
    rank_p=min(1.0, len(by_rank) * min(by_rank.values())),
    geweke_p=min(1.0, z.size * float(np.min(geweke.p_values(z)))),
    rank_counts={
      name: np.bincount(found, minlength=sizes.num_ranks).tolist()
      for name, found in ranks.items()
    },
    rank_seconds=middle - start,
    geweke_seconds=time.perf_counter() - middle,
  )


def _line(row):
  return (
    f'{row["kernel"]}: ranks p {row["rank_p"]:.2g}, Geweke p '
    f'{row["geweke_p"]:.2g}, moves {row["move_share"]:.2f}, seconds '
    f'{row["pilot_seconds"]:.0f} + {row["rank_seconds"]:.0f} + '
    f'{row["geweke_seconds"]:.0f}'
  )


def _spoiled(spoil, make):
  return lambda data: spoil(make(data))


def _seed(name, seed):
  """Returns a seed of its own for each kernel, so that rows are independent."""
  return zlib.crc32(f'{name}/{seed}'.encode()) % 2**24
