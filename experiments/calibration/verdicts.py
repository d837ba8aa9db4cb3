"""What the p-values of a study mean: limits, verdicts, power, the table."""

import numpy as np
from scipy import stats

from experiments.calibration import rank_test

__all__ = [
  'CAUGHT_BELOW',
  'FALSE_ALARM_RATE',
  'limit',
  'power',
  'to_markdown',
  'to_report',
  'verdict',
]

# Probability that any kernel of the library fails any test if all are right.
FALSE_ALARM_RATE = 0.01
# A control counts as caught where a right kernel would be this rarely.
CAUGHT_BELOW = 1e-6

_HEADER = (
  '| Kernel | Model | Steps that move | Ranks: p | at | Geweke: p | at (z) '
  '| Verdict | Power |\n'
  '| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n'
)


def limit(rows):
  """Returns the p-value below which a kernel of the library fails a test."""
  num_tests = 2 * sum(not row['is_control'] for row in rows)
  return FALSE_ALARM_RATE / max(num_tests, 1)


def verdict(row, lowest):
  """Returns what a row shows, and whether that is what it should.

  Args:
    row: of `study.measure`.
    lowest: of `limit`.
  """
  smallest = min(row['rank_p'], row['geweke_p'])
  if row['is_control']:
    return ('caught', True) if smallest < CAUGHT_BELOW else ('missed', False)
  return ('passes', True) if smallest >= lowest else ('FAILS', False)


def power(row, num_draws=100):
  """Returns how often tests like these would catch a kernel like this.

  The effects seen are taken for the true ones: z-scores are drawn around those
  seen, ranks from their frequencies. Caught is p < `CAUGHT_BELOW`.

  Args:
    row: of `study.measure`.
    num_draws: Studies drawn again, for the ranks.

  Returns:
    (of the ranks, of Geweke's test), each by its best single quantity.
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


def to_markdown(rows):
  """Returns the table: kernel by test, p-values, and where they are least."""
  lowest = limit(rows)
  lines = []
  for row in sorted(rows, key=lambda row: row['is_control']):
    p_values, scores = row['rank_p_values'], row['geweke_z_scores']
    at = max(scores, key=lambda name: abs(scores[name]))
    powers = power(row) if row['is_control'] else ()
    cells = [
      row['kernel'] + (' (broken)' if row['is_control'] else ''),
      row['model'],
      f'{row["move_share"]:.2f}',
      f'{row["rank_p"]:.2g}',
      min(p_values, key=p_values.get).replace('_', ' '),
      f'{row["geweke_p"]:.2g}',
      f'{at.replace("_", " ")} ({scores[at]:.1f})',
      verdict(row, lowest)[0],
      ', '.join(f'{share:.2f}' for share in powers),
    ]
    lines.append(f'| {" | ".join(cells)} |\n')
  return _HEADER + ''.join(lines)


def to_report(rows, sizes, seed, command):
  """Returns the table with what was done.

  Args:
    rows: of `study.measure`.
    sizes: The `chains.Sizes` of all rows.
    seed: Of the study.
    command: What was run.
  """
  smallest = min(
    min(row['rank_p'], row['geweke_p']) for row in rows if not row['is_control']
  )
  return f"""# Calibration

```
{command}
```

Ranks: {sizes.num_chains} truths drawn from the prior, each in a window of
{sizes.num_ranks} states of its own chain, on its own data; an exact
simultaneous test of the ECDF. Geweke: {sizes.num_chains} chains of
{sizes.num_successive} steps with fresh data after each, the second half
averaged, against {sizes.num_marginal} independent draws. Seed {seed}. A p-value
is the smallest over the quantities of the model, times their number.

Kernels are frozen after a pilot run on other data sets, pooled over its chains:
their params are constants, and whatever these are, a right kernel leaves each
posterior invariant. Not tested: the steps that adapt. The hyperparameter
kernels are two moves in turn, not reversible; their windows take every 20th
state, so that the order has no effect that ranks could see.

A kernel of the library fails below {limit(rows):.1e}: if all are right, any of
them fails with probability at most {FALSE_ALARM_RATE}. The smallest p-value
found is {smallest:.2g}. A broken kernel counts as caught below
{CAUGHT_BELOW:.0e} in either test. Power is how often each test alone (ranks,
Geweke) would catch a kernel with the effects seen, by its best quantity.

{to_markdown(rows)}"""
