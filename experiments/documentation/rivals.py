"""The tables of docs/results/rivals.md, made from the records.

  python -m experiments.documentation.rivals

writes each between its two comments; a test compares.
"""

import ast
import collections
import pathlib
import statistics

from experiments import models
from experiments.documentation import rivals_truth as truth_lib
from experiments.documentation.made_tables import fill
from experiments.documentation.made_tables import page
from experiments.documentation.made_tables import table
from experiments.framework.json_files import read_lines

__all__ = ['medians', 'with_tables']

_PAGE = page('rivals')
_RECORDS = _PAGE.with_suffix('') / 'runs.jsonl'
_OURS = 'sample_posterior'
_NUM_CHAINS = 8
_LANGUAGES = ('tfp_model', 'numpyro_model', 'pymc_model')


def with_tables(text):
  """Returns the page's text with the tables between their comments."""
  records = read_lines(_RECORDS)
  runs = _by_default(records)
  known = truth_lib.truths(records)
  tables = [
    _summary(runs, known),
    _of_more_draws(records),
    _relative_rates(runs),
    _rates(runs, _per_gradients),
    _rates(runs, _per_sampling_gradients),
    _lines(),
  ]
  return fill(text, 'rivals', tables)


def medians(records):
  """Returns {title: {(model, sampler): median rate, None if few converged}}.

  Those of seconds are over ours of the same seed, run side by side.

  Args:
    records: All of the file.
  """
  by_cell, _, _ = _by_cell(_by_default(records))
  return {
    'Effective draws per 1000 gradients': {
      cell: _median(found, _per_gradients) for cell, found in by_cell.items()
    },
    'Effective draws per CPU second, over ours': {
      cell: _median_ratio(by_cell, *cell, _per_second) for cell in by_cell
    },
  }


def _by_default(records):
  return [r for r in records if not truth_lib.is_on_request(r['sampler'])]


def _of_more_draws(records):
  """Returns whether five times the draws pass, and in what time."""
  more = [r for r in records if truth_lib.is_of_more_draws(r['sampler'])]
  samplers = sorted({r['sampler'] for r in more}, reverse=True)
  rows = []
  for model in dict.fromkeys(r['posterior'] for r in more):
    of_model = [r for r in records if r['posterior'] == model]
    rows.append([
      model.replace('_', ' '),
      *(
        _outcomes([r for r in of_model if r['sampler'] == sampler])
        for sampler in (*samplers, _OURS)
      ),
    ])  # fmt: skip
  head = ['Model', *samplers, _OURS]
  return table(head, rows)


def _outcomes(runs):
  """Returns how many converge, and the median of the CPU seconds of all.

  Of a run out of time they count as those that it had.
  """
  if not runs:
    return ''
  spent = [run.get('cpu_seconds', run.get('max_seconds')) for run in runs]
  known = [seconds for seconds in spent if seconds is not None]
  seconds = f', {statistics.median(known):.0f} s' if known else ''
  return f'{sum(map(_is_good, runs))} of {len(runs)}{seconds}'


def _summary(runs, known):
  """Returns a line for each sampler: how often right, and ahead of ours."""
  by_cell, samplers, models = _by_cell(runs)
  rows = []
  for sampler in samplers:
    own = [run for run in runs if run['sampler'] == sampler]
    good = [run for run in own if _is_good(run)]
    errors = [truth_lib.worst_error(run, known) for run in good]
    told = [error for error in errors if error is not None]
    ahead = [
      '' if sampler == _OURS else _against(by_cell, models, sampler, rate)
      for rate in (_per_second, _per_gradients)
    ]
    tried = [by_cell[m, sampler] for m in models if (m, sampler) in by_cell]
    solved = sum(map(_holds, tried))
    rows.append(
      (
        sampler,
        f'{solved} of {len(tried)}',
        f'{len(good)} of {len(own)}',
        f'{sum(error > truth_lib.FAR for error in told)} of {len(told)}',
        *ahead,
      )
    )
  head = (
    'Sampler',
    'Models with a verdict of converged, of those run',
    'Runs',
    f'of them beyond {truth_lib.FAR:.0f} standard errors',
    'Ours ahead per second, where both converge',
    'Ours ahead per gradient',
  )
  return table(head, rows)


def _against(by_cell, models, sampler, rate):
  """Returns 'a of b': of models where both hold, those where ours is ahead."""
  ratios = [_median_ratio(by_cell, model, sampler, rate) for model in models]
  known = [ratio for ratio in ratios if ratio is not None]
  return f'{sum(ratio < 1.0 for ratio in known)} of {len(known)}'


def _median_ratio(by_cell, model, sampler, rate):
  """Returns a sampler's rate over ours; None if few converged or none compare.

  The same seed makes a pair. Seconds compare of runs of one commit and one
  command, which were run one after the other: those of other days are of a
  machine that was faster or slower.
  """
  cells = [by_cell.get((model, name), []) for name in (sampler, _OURS)]
  if not all(map(_holds, cells)):
    return None
  ratios = [
    rate(theirs) / rate(ours)
    for theirs in filter(_is_good, cells[0])
    for ours in filter(_is_good, cells[1])
    if theirs['seed'] == ours['seed']
    and (rate is not _per_second or _are_beside(theirs, ours))
  ]
  return statistics.median(ratios) if ratios else None


def _are_beside(one, other):
  # Of the first seeds no record tells what the command was to run.
  return one['commit'] == other['commit'] and all(
    b['sampler'] in a.get('together', [b['sampler']])
    for a, b in ((one, other), (other, one))
  )


def _relative_rates(runs):
  """Returns the table of seconds: ours, and the others as multiples of it."""
  by_cell, samplers, models = _by_cell(runs)
  others = [sampler for sampler in samplers if sampler != _OURS]
  rows = []
  for model in models:
    ours = by_cell.get((model, _OURS), [])
    rows.append([
      model.replace('_', ' '),
      _cell(ours, _own_rate(ours), False),
      *(_multiple(by_cell, model, sampler) for sampler in others),
    ])  # fmt: skip
  return table(['Model', f'{_OURS}, per second', *others], rows)


def _own_rate(runs):
  """Returns the last run's per second; None where too few of all passed."""
  return _median(runs[-1:], _per_second) if _holds(runs) else None


def _multiple(by_cell, model, sampler):
  found = by_cell.get((model, sampler), [])
  ratio = _median_ratio(by_cell, model, sampler, _per_second)
  if ratio is None:
    return 'apart' if _holds(found) else _cell(found, None, False)
  return f'**{ratio:.2g}**' if ratio > 1.0 else f'{ratio:.2g}'


def _rates(runs, rate):
  """Returns a line for each model, a column for each sampler."""
  by_cell, samplers, models = _by_cell(runs)
  rows = []
  for model in models:
    cells = [by_cell.get((model, sampler), []) for sampler in samplers]
    rates = [_median(found, rate) for found in cells]
    known = [value for value in rates if value is not None]
    best = max(known) if len(known) > 1 else None
    rows.append(
      [
        model.replace('_', ' '),
        str(len(next(filter(None, map(_size, cells)), ()))),
        *(
          _cell(found, value, value is not None and value == best)
          for found, value in zip(cells, rates)
        ),
      ]
    )
  return table(['Model', 'd', *samplers], rows)


def _cell(found, value, is_best):
  if not found:
    return ''
  good = sum(map(_is_good, found))
  share = '' if good == len(found) else f' ({good}/{len(found)})'
  if value is None:
    return f'-{share}'
  text = f'{value:.0f}' if value >= 10 else f'{value:.2g}'
  return f'**{text}**{share}' if is_best else f'{text}{share}'


def _size(found):
  """Returns the coordinates of the first finished run."""
  return next((run['means'] for run in found if 'means' in run), ())


def _by_cell(runs):
  """Returns {(model, sampler): runs}, and both names in their order."""
  by_cell = collections.defaultdict(list)
  for run in runs:
    by_cell[run['posterior'], run['sampler']].append(run)
  samplers = list(dict.fromkeys(run['sampler'] for run in runs))
  models = list(dict.fromkeys(run['posterior'] for run in runs))
  return by_cell, samplers, models


def _is_good(run):
  """Whether the gates hold, and its own verdict agrees where it has one."""
  is_within = run['status'] == 'finished' and run['converged']
  return is_within and run.get('own_converged') is not False


def _holds(found):
  """Whether at least half of the runs converged."""
  return bool(found) and 2 * sum(map(_is_good, found)) >= len(found)


def _median(found, rate):
  """Returns the median of the runs that converged; None if few did."""
  if not _holds(found):
    return None
  return statistics.median(rate(run) for run in found if _is_good(run))


def _least(run):
  return min(run['ess_bulk'], run['ess_tail'])


def _per_second(run):
  return _least(run) / run['cpu_seconds']


def _per_gradients(run):
  return 1000.0 * _least(run) / run['num_gradients'] / _NUM_CHAINS


def _per_sampling_gradients(run):
  spent = run['num_gradients'] - run['num_warmup_gradients']
  return 1000.0 * _least(run) / spent / _NUM_CHAINS


def _lines():
  """Returns the lines of each model in each language, imports left out."""
  rows = []
  for name in models.MODELS:
    file = pathlib.Path(models.load(name).__file__)
    functions = {
      node.name: node
      for node in ast.parse(file.read_text()).body
      if isinstance(node, ast.FunctionDef)
    }
    if not functions.keys() >= set(_LANGUAGES):
      continue  # Other data of another file's model.
    counts = [_num_lines(functions[language]) for language in _LANGUAGES]
    rows.append([name.replace('_', ' '), *map(str, counts)])
  return table(['Model', 'TFP', 'NumPyro', 'PyMC'], rows)


def _num_lines(function):
  """Returns the lines between `def` and the end that are no imports."""
  imports = (ast.Import, ast.ImportFrom)
  body = [node for node in function.body if not isinstance(node, imports)]
  return sum(node.end_lineno - node.lineno + 1 for node in body)


if __name__ == '__main__':
  _PAGE.write_text(with_tables(_PAGE.read_text()))
