"""Tables of runs of the papers' configs, in the papers' layout.

A record is one method, its numbers averaged over the repeats that finished.
"""

import string

__all__ = ['COLUMNS', 'LATENT', 'MOMENTS', 'cells', 'columns', 'moment_cells']

# Heading -> how a record's numbers are shown in its cells.
COLUMNS = {
  'Time(s)': '{seconds:.1f}',
  'Accept rate': '{accept_rate:.3f}',
  'ESS (min, med, max)': '({ess_min:.1f}, {ess_median:.1f}, {ess_max:.1f})',
  'ESS q^2, log pi (min)': '{ess_squared:.1f}, {ess_log_prob:.1f}',
  'Min ESS/s (1 st.d.), median': (
    '{min_ess_per_second:.2f} ({min_ess_per_second_sd:.2f}), '
    '{median_ess_per_second:.2f}'
  ),
  'Sampling alone: ESS/s (min, med)': (
    '{min_ess_per_sampling_second:.2f}, {median_ess_per_sampling_second:.2f}'
  ),
  'ESS/gradient (min, med)': (
    '{min_ess_per_gradient:.4f}, {median_ess_per_gradient:.4f}'
  ),
  'Bulk, tail ESS (min)': '{ess_bulk:.1f}, {ess_tail:.1f}',
  'R-hat (max, med)': '{rhat_max:.3f}, {rhat_median:.3f}',
  'Learned beta, condition': '{entropy_weight:.2f}, {condition_number:.2f}',
  'Learned delta': '{step_size:.3g}',
  'Likelihood, gradient calls': '{num_target_calls:.0f}, {num_gradients:.0f}',
  'Compile(s)': '{compile_seconds:.1f}',
  'Repeats': '{num_finished}',
}
# Shown where some method has one delta to learn.
LATENT = ('Learned delta', 'Likelihood, gradient calls')
MOMENTS = (
  'Quantity',
  'Mean, known',
  'Deviation, known',
  'z of mean',
  'z of deviation',
)


class _Numbers(string.Formatter):
  """Shows a dash for what is unknown; chains that never meet have no R-hat."""

  def format_field(self, value, spec):
    if value is None:
      return '-'
    if spec == '.3f' and value >= 1e3:  # Of chains that never move.
      return '> 1000'
    return super().format_field(value, spec)


def columns(records):
  """Returns the headings that a table of these records has."""
  is_latent = any(record['step_size'] is not None for record in records)
  return [name for name in COLUMNS if is_latent or name not in LATENT]


def cells(record, names):
  """Returns the texts of a record in the columns of these names."""
  show = _Numbers().vformat
  found = {name: show(COLUMNS[name], (), record) for name in names}
  for name, cell in found.items():
    found[name] = cell.replace(' (-)', '')  # One repeat has no deviation.
  if record['num_singular']:
    singular = f'{record["num_singular"]} singular'
    beta, _, condition = found['Learned beta, condition'].partition(', ')
    if condition == '-':
      condition = singular
    else:
      condition += f' ({singular})'
    found['Learned beta, condition'] = f'{beta}, {condition}'
  if record['num_failed']:
    found['Repeats'] += f' (+ {record["num_failed"]} failed)'
  return list(found.values())


def moment_cells(moments):
  """Returns the texts of one quantity, in the order of `MOMENTS`."""
  if 'mean' in moments:
    pairs = [
      f'{moments[name]:.4f}, {moments[f"known_{name}"]:.4f}'
      for name in ('mean', 'deviation')
    ]
  else:
    pairs = [f'worst of {moments["size"]}', '-']
  scores = [moments['worst_mean_z'], moments['worst_deviation_z']]
  shown = ['-' if z is None else f'{z:.1f}' for z in scores]
  return [moments['quantity'], *pairs, *shown]
