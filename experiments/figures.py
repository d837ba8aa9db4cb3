"""Figures of a run, drawn from the small arrays of its cells."""

import math

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from experiments import tables  # noqa: E402

__all__ = ['draw_all']


def draw_all(folder, config, target):
  """Draws every figure that the finished cells allow; returns their paths."""
  path = folder.path / 'figures'
  path.mkdir(exist_ok=True)
  cells = _first_finished(folder, config)
  rows = tables.join(folder.records(config))
  drawings = {
    'efficiency': lambda: _efficiency(rows),
    'traces': lambda: _traces(cells),
    'log_density': lambda: _log_density(cells),
    'adaptation': lambda: _adaptation(cells),
    'covariance': lambda: _covariance(cells, target),
    'diagonal': lambda: _diagonal(cells, target),
    'diagonal_image': lambda: _image(cells, config.diagonal_image_shape),
  }
  drawn = []
  for name, draw in drawings.items():
    figure = draw()
    if figure is not None:
      file = path / f'{name}.png'
      figure.savefig(file, dpi=120)
      plt.close(figure)
      drawn.append(file)
  return drawn


def _first_finished(folder, config):
  """Returns {label: (record, arrays)} of each method's first good repeat."""
  cells = {}
  for index, label in enumerate(config.labels()):
    for repeat in range(config.num_repeats):
      record = folder.read_cell(index, label, repeat)
      if record is not None and record['status'] == 'finished':
        cells[label] = (record, folder.read_arrays(index, label, repeat))
        break
  return cells


def _grid(num_panels, width=4.0, height=3.0, **kwargs):
  """Returns a figure and `num_panels` flat axes."""
  num_columns = min(3, num_panels)
  num_rows = math.ceil(num_panels / num_columns)
  figure, axes = plt.subplots(
    num_rows,
    num_columns,
    figsize=(width * num_columns, height * num_rows),
    layout='constrained',
    squeeze=False,
    **kwargs,
  )
  for axis in axes.ravel()[num_panels:]:
    axis.set_axis_off()
  return figure, axes.ravel()[:num_panels]


def _efficiency(rows):
  """Bars of ESS per second: the worst and the median coordinate."""
  rows = [row for row in rows if row.seconds and None not in row.ess]
  if not rows:
    return None
  figure, axes = _grid(2, width=5.0, height=0.35 * len(rows) + 1.2)
  labels = [row.label for row in rows]
  deviations = [row.min_ess_per_second_sd or 0.0 for row in rows]
  axes[0].barh(
    labels, [row.min_ess_per_second for row in rows], xerr=deviations
  )
  axes[0].set_xlabel('min ESS/s, bars: 1 st.d. over repeats')
  axes[1].barh(labels, [row.ess[1] / row.seconds for row in rows])
  axes[1].set_xlabel('median ESS/s')
  for axis in axes:
    axis.invert_yaxis()
  return figure


def _traces(cells):
  """The coordinate with the smallest ESS, first chain."""
  if not cells:
    return None
  figure, axes = _grid(len(cells), height=2.2)
  for axis, (label, (record, arrays)) in zip(axes, cells.items(), strict=True):
    axis.plot(arrays['worst_trace'], linewidth=0.5)
    axis.set_title(f'{label}, coordinate {record["worst_coordinate"]}')
  return figure


def _log_density(cells):
  """Log density against iteration; adaptation left of the line."""
  if not cells:
    return None
  figure, axes = _grid(len(cells), height=2.2)
  for axis, (label, (_, arrays)) in zip(axes, cells.items(), strict=True):
    offset = int(arrays.get('adaptation_num_steps', 0))
    for phase, start in (('adaptation', 0), ('sampling', offset)):
      if f'{phase}_log_prob' not in arrays:
        continue
      values = arrays[f'{phase}_log_prob']
      steps = np.linspace(0, arrays[f'{phase}_num_steps'], len(values))
      axis.plot(start + steps, values, linewidth=0.5)
    axis.axvline(offset, color='black', linewidth=0.8)
    sampled = arrays.get('sampling_log_prob', np.zeros(1))
    low, high = np.quantile(sampled, [0.001, 1.0])
    axis.set_ylim(low - 2 * (high - low) - 1, high + 0.2 * (high - low) + 1)
    axis.set_title(label)
  return figure


def _adaptation(cells):
  """Entropy weight, acceptance and scale while adapting."""
  names = {
    'mean_accept_prob': 'acceptance (smoothed)',
    'entropy_weight': 'entropy weight',
    'log_scale': 'mean log |diag C|',
  }
  figure, axes = _grid(len(names))
  for axis, (name, title) in zip(axes, names.items(), strict=True):
    for label, (_, arrays) in cells.items():
      values = arrays.get(f'adaptation_{name}')
      if values is None:
        continue
      if name == 'mean_accept_prob':
        width = max(1, len(values) // 50)
        values = np.convolve(values, np.ones(width) / width, mode='valid')
      steps = np.linspace(0, arrays['adaptation_num_steps'], len(values))
      axis.plot(steps, values, label=label, linewidth=0.9)
    axis.set_title(title)
    axis.set_xlabel('adaptation step')
  if not any(axis.lines for axis in axes):
    plt.close(figure)
    return None
  axes[1].set_yscale('log')
  axes[0].legend(fontsize='small')
  return figure


def _covariance(cells, target):
  """True covariance beside every learned one, scaled to the same trace."""
  learned = _factors(cells)
  if target.covariance is None or not learned:
    return None
  if target.event_size == 2:
    return _ellipses(learned, target)
  figure, axes = _grid(len(learned) + 1)
  panels = {'true covariance': target.covariance}
  for label, factor in learned.items():
    product = factor @ factor.T
    panels[label] = product * np.trace(target.covariance) / np.trace(product)
  limit = np.abs(target.covariance).max()
  for axis, (label, matrix) in zip(axes, panels.items(), strict=True):
    axis.imshow(matrix, vmin=-limit, vmax=limit, cmap='RdBu_r')
    axis.set_title(label)
  return figure


def _ellipses(learned, target):
  """Unit ellipses of the target and of each learned proposal, unscaled."""
  figure, axes = _grid(len(learned))
  angle = np.linspace(0, 2 * np.pi, 200)
  circle = np.stack([np.cos(angle), np.sin(angle)])
  true = np.linalg.cholesky(target.covariance)
  for axis, (label, factor) in zip(axes, learned.items(), strict=True):
    axis.plot(*(true @ circle), color='green', label='target')
    axis.plot(*(factor @ circle), color='blue', label='learned C C^T')
    axis.set_title(label)
    axis.set_aspect('equal', adjustable='datalim')
    axis.legend(fontsize='small')
  return figure


def _diagonal(cells, target):
  """The learned diagonal over time against the true scales."""
  shown = {k: a for k, (_, a) in cells.items() if 'factor_diagonal' in a}
  if not shown:
    return None
  figure, axes = _grid(len(shown))
  for axis, (label, arrays) in zip(axes, shown.items(), strict=True):
    history = np.abs(arrays['factor_diagonal'])
    colors = plt.get_cmap('viridis')(np.linspace(0, 1, len(history)))
    for values, color in zip(history, colors, strict=True):
      axis.plot(values, color=color, linewidth=0.6)
    if target.covariance is not None:
      scales = np.sqrt(np.diag(target.covariance))
      # The target's shape at the size that fits the last diagonal best.
      scales = scales * (scales @ history[-1]) / (scales @ scales)
      axis.plot(scales, color='red', linestyle='--', label='true, scaled')
      axis.legend(fontsize='small')
    axis.set_title(f'{label}: diag C, dark to light')
    axis.set_xlabel('coordinate')
  return figure


def _image(cells, shape):
  """The learned diagonal as an image; a bias beyond it is left out."""
  learned = _factors(cells)
  if shape is None or not learned:
    return None
  figure, axes = _grid(len(learned))
  for axis, (label, factor) in zip(axes, learned.items(), strict=True):
    diagonal = np.abs(np.diag(factor))[: math.prod(shape)]
    axis.imshow(diagonal.reshape(shape), cmap='gray')
    axis.set_title(f'{label}: diag C')
  return figure


def _factors(cells):
  return {
    label: np.asarray(arrays['factor'], np.float64)
    for label, (_, arrays) in cells.items()
    if 'factor' in arrays
  }
