"""Figures of a run, drawn from the small arrays of its cells."""

import math

import matplotlib

matplotlib.use('Agg')

import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

from experiments.papers import learned  # noqa: E402
from experiments.papers import shrinkage  # noqa: E402
from experiments.papers import sweeps  # noqa: E402
from experiments.papers import tables  # noqa: E402
from experiments.run import store  # noqa: E402

# Name of the trace: (title, whether the curve is smoothed, scale of the axis).
_ADAPTATION = {
  'mean_accept_prob': ('acceptance (smoothed)', True, 'linear'),
  'entropy_weight': ('entropy weight beta', False, 'log'),
  'log_scale': ('mean log |diag C|', False, 'linear'),
  'penalty_weight': ('penalty weight gamma', False, 'log'),
  'mean_abs_eigenvalue': ('|mu|, of D (smoothed)', True, 'linear'),
}
# Most coordinates of a covariance matrix that a figure shows completely.
_MAX_DRAWN = 1000
_MAX_PANELS = 24
_IMAGES = {
  'covariance_first': 'C C^T, first coordinates',
  'covariance_last': 'C C^T, last coordinates',
  'precision_first': '(C C^T)^-1, first coordinates',
  'precision_last': '(C C^T)^-1, last coordinates',
}


def draw_all(folder, records, config, target):
  """Draws every figure that the finished cells allow; returns their paths."""
  cells = _first_finished(folder, records)
  records = [one._replace(case=in_figure(one.case)) for one in records]
  drawings = {
    'efficiency': lambda: _efficiency(tables.average(records)),
    'leapfrog_steps': lambda: sweeps.draw_leapfrog_steps(records, _grid),
    'accept_rates': lambda: sweeps.draw_accept_rates(records, _grid),
    'shrinkage': lambda: shrinkage.draw(cells, target, _grid),
    'traces': lambda: _traces(cells),
    'log_density': lambda: _log_density(cells),
    'adaptation': lambda: _adaptation(cells),
    'covariance': lambda: _covariance(cells, target),
    'learned': lambda: _learned(cells, target),
    'diagonal': lambda: _diagonal(cells, target),
    'diagonal_image': lambda: _image(cells, config.diagonal_image_shape),
  }
  drawn = []
  for name, draw in drawings.items():
    figure = draw()
    if figure is not None:
      file = folder / 'figures' / f'{name}.png'
      file.parent.mkdir(exist_ok=True)
      figure.savefig(file, dpi=120)
      plt.close(figure)
      drawn.append(file)
  return drawn


def in_figure(label):
  """Returns text that matplotlib shows as the label, dollars included."""
  return label.replace('$', r'\$')


def _first_finished(folder, records):
  """Returns {label: (record, arrays)} of each method's first good repeat."""
  cells = {}
  for one in records:
    label = in_figure(one.case)
    if one.status == 'finished' and label not in cells:
      cells[label] = (one.record, store.read_arrays(folder, one))
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
  """Draws bars of ESS per second, for the worst and the median coordinate."""
  rows = {
    label: row
    for label, row in rows.items()
    if row['median_ess_per_second'] is not None
  }
  if not rows:
    return None
  figure, axes = _grid(2, width=5.0, height=0.35 * len(rows) + 1.2)
  labels, values = list(rows), list(rows.values())
  axes[0].barh(
    labels,
    [row['min_ess_per_second'] for row in values],
    xerr=[row['min_ess_per_second_sd'] or 0.0 for row in values],
  )
  axes[0].set_xlabel('min ESS/s, bars: 1 st.d. over repeats')
  axes[1].barh(labels, [row['median_ess_per_second'] for row in values])
  axes[1].set_xlabel('median ESS/s')
  for axis in axes:
    axis.invert_yaxis()
  return figure


def _traces(cells):
  """Draws the coordinate with the smallest ESS in the first chain."""
  if not cells:
    return None
  figure, axes = _grid(len(cells), height=2.2)
  for axis, (label, (record, arrays)) in zip(axes, cells.items(), strict=True):
    axis.plot(arrays['worst_trace'], linewidth=0.5)
    axis.set_title(f'{label}, coordinate {record["worst_coordinate"]}')
  return figure


def _log_density(cells):
  """Draws the log density by iteration; adaptation is left of the line."""
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
  """Draws the traces that the adaptation records at every step."""
  recorded = set().union(*(arrays for _, arrays in cells.values()))
  names = [name for name in _ADAPTATION if f'adaptation_{name}' in recorded]
  if not names:
    return None
  figure, axes = _grid(len(names))
  for axis, name in zip(axes, names, strict=True):
    title, is_noisy, scale = _ADAPTATION[name]
    for label, (_, arrays) in cells.items():
      values = arrays.get(f'adaptation_{name}')
      if values is None:
        continue
      if is_noisy:
        width = max(1, len(values) // 50)
        values = np.convolve(values, np.ones(width) / width, mode='valid')
      steps = np.linspace(0, arrays['adaptation_num_steps'], len(values))
      axis.plot(steps, values, label=label, linewidth=0.9)
    axis.set_title(title)
    axis.set_xlabel('adaptation step')
    axis.set_yscale(scale)
  axes[0].legend(fontsize='small')
  return figure


def _covariance(cells, target):
  """Draws the true covariance beside learned ones of the same trace."""
  factors = _factors(cells)
  if target.covariance is None or not factors:
    return None
  if target.event_size == 2:
    return _ellipses(factors, target)
  covariance = target.covariance
  if covariance.ndim == 1:
    if target.event_size > _MAX_DRAWN:
      return None
    covariance = np.diag(covariance)
  figure, axes = _grid(len(factors) + 1)
  panels = {'true covariance': covariance}
  for label, factor in factors.items():
    product = factor @ factor.T
    panels[label] = product * np.trace(covariance) / np.trace(product)
  limit = np.abs(covariance).max()
  for axis, (label, matrix) in zip(axes, panels.items(), strict=True):
    axis.imshow(matrix, vmin=-limit, vmax=limit, cmap='RdBu_r')
    axis.set_title(label)
  return figure


def _learned(cells, target):
  """Draws the ends of C C^T and of its inverse as images."""
  panels = {}
  for name, factor in (target.metric_factors or {}).items():
    images = learned.images(np.asarray(factor, np.float64))
    panels.update({(name, key): image for key, image in images.items()})
  for label, (_, arrays) in cells.items():
    found = {key: arrays[key] for key in _IMAGES if key in arrays}
    panels.update({(label, key): image for key, image in found.items()})
  if not panels:
    return None
  # A sweep has many factors, whose structure the first ones show.
  panels = dict(list(panels.items())[:_MAX_PANELS])
  figure, axes = _grid(len(panels), width=3.6, height=3.4)
  for axis, ((label, key), image) in zip(axes, panels.items(), strict=True):
    limit = np.abs(image).max()
    axis.imshow(image, vmin=-limit, vmax=limit, cmap='RdBu_r')
    axis.set_title(f'{label}\n{_IMAGES[key]}', fontsize='small')
  return figure


def _ellipses(factors, target):
  """Draws unit ellipses of the target and of each learned proposal."""
  covariance = target.covariance
  if covariance.ndim == 1:
    covariance = np.diag(covariance)
  figure, axes = _grid(len(factors))
  angle = np.linspace(0, 2 * np.pi, 200)
  circle = np.stack([np.cos(angle), np.sin(angle)])
  true = np.linalg.cholesky(covariance)
  for axis, (label, factor) in zip(axes, factors.items(), strict=True):
    axis.plot(*(true @ circle), color='green', label='target')
    axis.plot(*(factor @ circle), color='blue', label='learned C C^T')
    axis.set_title(label)
    axis.set_aspect('equal', adjustable='datalim')
    axis.legend(fontsize='small')
  return figure


def _diagonal(cells, target):
  """Draws the learned diagonal over time against the true scales."""
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
      scales = np.sqrt(target.variances())
      # The true scales are multiplied to fit the last diagonal best.
      scales = scales * (scales @ history[-1]) / (scales @ scales)
      axis.plot(scales, color='red', linestyle='--', label='true, scaled')
      axis.legend(fontsize='small')
    axis.set_title(f'{label}: diag C, dark to light')
    axis.set_xlabel('coordinate')
  return figure


def _image(cells, shape):
  """Draws the learned diagonal as an image, without a bias at its end."""
  factors = _factors(cells)
  if shape is None or not factors:
    return None
  figure, axes = _grid(len(factors))
  for axis, (label, factor) in zip(axes, factors.items(), strict=True):
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
