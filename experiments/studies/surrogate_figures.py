"""Figures 1 to 3 of the kernel HMC paper, drawn from their measurements."""

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

__all__ = ['draw_acceptance', 'draw_history', 'draw_orbits']

_QUANTILES = (0.1, 0.9)


def draw_history(rows):
  """Returns Figure 3: acceptance, norm of the mean and ESS over n.

  Args:
    rows: of `growing_history.measure`.
  """
  panels = {
    'acceptance': 'acceptance',
    'mean_norm': 'norm of the mean',
    'min_ess': 'min ESS',
  }
  figure, axes = plt.subplots(1, 3, figsize=(12, 3.5), layout='constrained')
  limits = [r['size'] for r in rows if r['size'] is not None]
  for axis, (name, title) in zip(axes, panels.items(), strict=True):
    for number, method in enumerate(dict.fromkeys(r['method'] for r in rows)):
      by_size = {}
      for row in rows:
        if row['method'] == method:
          by_size.setdefault(row['size'], []).append(row[name])
      if None in by_size:  # The same whatever n is.
        values = by_size[None]
        by_size = {min(limits): values, max(limits): values}
      _bars(axis, by_size, method, f'C{number}')
    axis.set_title(title)
    axis.set_xlabel('n = m')
  axes[2].set_yscale('log')
  axes[0].legend(fontsize='small')
  return figure


def _bars(axis, by_size, label, color):
  """Draws means, and bars that hold 80 % of the values."""
  means = np.array([np.mean(values) for values in by_size.values()])
  quantiles = np.array(
    [np.quantile(values, _QUANTILES) for values in by_size.values()]
  )
  lengths = np.abs(quantiles.T - means)
  axis.errorbar(
    list(by_size), means, lengths, label=label, color=color, capsize=3
  )


def draw_acceptance(rows):
  """Returns Figure 2: a map over d and n, and its slices with error bars.

  Args:
    rows: of `trajectory_acceptance.measure`.
  """
  names = list(dict.fromkeys(row['surrogate'] for row in rows))
  event_sizes = sorted({row['event_size'] for row in rows})
  sizes = sorted({row['size'] for row in rows})
  figure, axes = plt.subplots(
    len(names), 3, figsize=(12, 3.2 * len(names)), layout='constrained'
  )
  for line, name in zip(np.atleast_2d(axes), names, strict=True):
    values = {
      (d, n): [
        row['along']
        for row in rows
        if (row['surrogate'], row['event_size'], row['size']) == (name, d, n)
      ]
      for d in event_sizes
      for n in sizes
    }
    means = [[np.mean(values[d, n]) for n in sizes] for d in event_sizes]
    image = line[0].imshow(means, vmin=0, vmax=1, origin='lower', aspect='auto')
    line[0].set_xticks(range(len(sizes)), sizes)
    line[0].set_yticks(range(len(event_sizes)), event_sizes)
    line[0].set(title=name, xlabel='n = m', ylabel='d')
    figure.colorbar(image, ax=line[0])
    for number, n in enumerate(sizes):
      by_d = {d: values[d, n] for d in event_sizes}
      _bars(line[1], by_d, f'n = m = {n}', f'C{number}')
    for number, d in enumerate(event_sizes):
      _bars(line[2], {n: values[d, n] for n in sizes}, f'd = {d}', f'C{number}')
    line[1].set(xlabel='d', ylim=(0, 1.02))
    line[2].set(xlabel='n = m', ylim=(0, 1.02))
    for axis in line[1:]:
      axis.legend(fontsize='x-small')
  return figure


def draw_orbits(found):
  """Returns Figure 1: paths above, acceptance along them below.

  Args:
    found: of `orbits.measure`.
  """
  figure, axes = plt.subplots(
    2, len(found), figsize=(3.6 * len(found), 6), layout='constrained'
  )
  for (above, below), (name, (path, rates)) in zip(
    axes.T, found.items(), strict=True
  ):
    above.plot(*path.T, linewidth=0.8)
    above.plot(*path[0], 'r*')
    above.plot(*path[-1], 'b*')
    above.set(title=name, aspect='equal', xlim=(-3, 3), ylim=(-3, 3))
    below.plot(rates)
    below.set(xlabel='leapfrog step', ylim=(0, 1.05))
  axes[1, 0].set_ylabel('acceptance')
  return figure
