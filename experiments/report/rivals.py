"""Samplers of four libraries on the same models: rates, and errors.

Means are judged by those that long runs of two other libraries agree on, so
that no sampler of ours is its own judge.
"""

import ast
import collections
import functools
import math
import statistics

from experiments.report import records

OURS = 'sample_posterior'
# Samplers of the first tables; the others stand in folded ones.
MAIN = (OURS, 'nutpie', 'NumPyro', 'PyMC')
# Standard errors beyond which a mean is wrong.
FAR = 4.0
_NUM_CHAINS = 8
_LONG, _MORE = 'long', '5000 draws'
# Where a model has a form that is easier to sample, the long runs are of that
# form: coordinates with the same name have the same distribution.
_EASIER = {
  'eight_schools': 'eight_schools_non_centered',
  'varying_slopes_centered': 'varying_slopes',
}
# Parts that have no variance, so that no draws give the error of a mean. Where
# these scales are large the slab alone bounds the weights, the likelihood is
# constant, and the tails are those of the prior: half-Cauchy, and the power -3
# of InverseGamma(2, 8).
_WITHOUT_VARIANCE = {'horseshoe': ('local', 'tau', 'slab')}
_LANGUAGES = ('tfp_model', 'numpyro_model', 'pymc_model')


@functools.cache
def _all():
  return records.rows('rivals', 'posterior', 'sampler')


@functools.cache
def runs():
  """Returns {(model, sampler): runs} with default settings."""
  asked = [r for r in _all() if not r['sampler'].endswith((_LONG, _MORE))]
  return dict(records.groups(asked, 'posterior', 'sampler'))


def _samplers():
  return list(dict.fromkeys(sampler for _, sampler in runs()))


def _models():
  return list(dict.fromkeys(model for model, _ in runs()))


def truths(found):
  """Returns {model: {coordinate: (mean, standard error)}}.

  A truth needs long runs of two libraries, both with a verdict of converged, of
  which the last counts. Coordinates on which they differ by more than four
  standard errors are left out, and those without a variance.
  """
  by_model = collections.defaultdict(dict)
  for run in found:
    if run['sampler'].endswith(_LONG) and run.get('converged'):
      library = run['sampler'].split(',')[0]
      by_model[run['posterior']][library] = run['means']
  known = {}
  for model, means in by_model.items():
    if len(means) == 2:
      left_out = _WITHOUT_VARIANCE.get(model, ())
      known[model] = {
        name: value
        for name, value in _agreed(*means.values()).items()
        if name.partition('[')[0] not in left_out
      }
  for model, easier in _EASIER.items():
    if easier in known:
      known[model] = known[easier]
  return known


def _agreed(first, second):
  """Returns the coordinates that two runs agree on, weighted."""
  agreed = {}
  for name in first.keys() & second.keys():
    (a, a_error), (b, b_error) = first[name], second[name]
    if abs(a - b) <= FAR * math.hypot(a_error, b_error):
      weight, other = a_error**-2.0, b_error**-2.0
      mean = (weight * a + other * b) / (weight + other)
      agreed[name] = mean, (weight + other) ** -0.5
  return agreed


def worst_error(run, known):
  """Returns the largest error of a mean in standard errors of both.

  Returns:
    The error, or `None` where nothing is known.
  """
  exact = known.get(run['posterior'], {})
  errors = [
    abs(mean - exact[name][0]) / math.hypot(error, exact[name][1])
    for name, (mean, error) in run['means'].items()
    if name in exact
  ]
  return max(errors, default=None)


def _is_good(run):
  """Returns whether the gates hold, and its own verdict where it has one."""
  is_within = run['status'] == 'finished' and run['converged']
  return is_within and run.get('own_converged') is not False


def _holds(found):
  """Returns whether at least half of the runs converged."""
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


def _ratio(model, sampler, rate):
  """Returns a sampler's median rate over ours; None if none compare.

  The same seed makes a pair. Seconds compare among runs of one commit and one
  command, which ran one after the other: on other days the machine was faster
  or slower.
  """
  theirs, ours = (runs().get((model, name), []) for name in (sampler, OURS))
  if not (_holds(theirs) and _holds(ours)):
    return None
  ratios = [
    rate(their) / rate(our)
    for their in filter(_is_good, theirs)
    for our in filter(_is_good, ours)
    if their['seed'] == our['seed']
    and (rate is not _per_second or _are_beside(their, our))
  ]
  return statistics.median(ratios) if ratios else None


def _are_beside(one, other):
  # Records of the first seeds do not say what the command was to run.
  return one['commit'] == other['commit'] and all(
    b['sampler'] in a.get('together', [b['sampler']])
    for a, b in ((one, other), (other, one))
  )


def medians():
  """Returns {title: {(model, sampler): median rate, None if few converged}}."""
  return {
    'Effective draws per 1000 gradients': {
      cell: _median(found, _per_gradients) for cell, found in runs().items()
    },
    'Effective draws per CPU second, over ours': {
      cell: _ratio(*cell, _per_second) for cell in runs()
    },
  }


def summary():
  """Yields the cells of each sampler: how often right, and ahead of ours."""
  known = truths(_all())
  for sampler in _samplers():
    tried = [found for (_, name), found in runs().items() if name == sampler]
    own = [run for found in tried for run in found]
    good = [run for run in own if _is_good(run)]
    errors = [worst_error(run, known) for run in good]
    errors = [error for error in errors if error is not None]
    yield (
      sampler,
      f'{sum(map(_holds, tried))} of {len(tried)}',
      f'{len(good)} of {len(own)}',
      f'{sum(error > FAR for error in errors)} of {len(errors)}',
      *(
        '' if sampler == OURS else _ahead(sampler, rate)
        for rate in (_per_second, _per_gradients)
      ),
    )


def _ahead(sampler, rate):
  """Returns 'a of b': among models where both hold, those where ours leads."""
  ratios = [_ratio(model, sampler, rate) for model in _models()]
  known = [ratio for ratio in ratios if ratio is not None]
  count = sum(ratio < 1.0 for ratio in known)
  return f'{count} of {len(known)}' if known else '-'


def more_draws():
  """Returns samplers, and lines of whether five times the draws pass."""
  more = [r for r in _all() if r['sampler'].endswith(_MORE)]
  samplers = [*sorted({r['sampler'] for r in more}, reverse=True), OURS]
  by_cell = dict(records.groups(_all(), 'posterior', 'sampler'))
  lines = [
    [
      model.replace('_', ' '),
      *(_outcomes(by_cell.get((model, name), [])) for name in samplers),
    ]
    for model in dict.fromkeys(r['posterior'] for r in more)
  ]
  return samplers, lines


def _outcomes(found):
  """Returns how many converge, and the median of the CPU seconds of all.

  A run out of time counts with the seconds that it had.
  """
  if not found:
    return ''
  spent = [run.get('cpu_seconds', run.get('max_seconds')) for run in found]
  known = [seconds for seconds in spent if seconds is not None]
  seconds = f', {statistics.median(known):.0f} s' if known else ''
  return f'{sum(map(_is_good, found))} of {len(found)}{seconds}'


def others():
  """Returns the samplers of the folded tables."""
  return [sampler for sampler in _samplers() if sampler not in MAIN]


def relative_rates(samplers):
  """Yields lines of our effective draws per second, and of multiples of it."""
  for model in _models():
    ours = runs().get((model, OURS), [])
    own = _median(ours[-1:], _per_second) if _holds(ours) else None
    multiples = [_multiple(model, sampler) for sampler in samplers]
    yield [model.replace('_', ' '), _cell(ours, own), *multiples]


def _multiple(model, sampler):
  found = runs().get((model, sampler), [])
  ratio = _ratio(model, sampler, _per_second)
  if ratio is None:
    return 'apart' if _holds(found) else _cell(found, None)
  return f'**{ratio:.2g}**' if ratio > 1.0 else f'{ratio:.2g}'


def rates(samplers, is_sampling_alone=False):
  """Yields lines of effective draws per 1000 gradients."""
  rate = _per_sampling_gradients if is_sampling_alone else _per_gradients
  for model in _models():
    cells = [runs().get((model, sampler), []) for sampler in samplers]
    values = [_median(found, rate) for found in cells]
    known = [value for value in values if value is not None]
    best = max(known) if len(known) > 1 else None
    yield [
      model.replace('_', ' '),
      *(
        _cell(found, value, value is not None and value == best)
        for found, value in zip(cells, values)
      ),
    ]


def _cell(found, value, is_best=False):
  if not found:
    return ''
  good = sum(map(_is_good, found))
  share = '' if good == len(found) else f' ({good}/{len(found)})'
  if value is None:
    return f'-{share}'
  text = f'{value:.0f}' if value >= 10 else f'{value:.2g}'
  return f'**{text}**{share}' if is_best else f'{text}{share}'


def lines_of_models():
  """Returns the lines of each model in each language, without imports."""
  found = {}
  for path in (records.ROOT / 'experiments').rglob('*.py'):
    text = path.read_text(encoding='utf-8')
    if all(f'def {language}(' in text for language in _LANGUAGES):
      functions = {
        node.name: node
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
      }
      counts = [_num_lines(functions[language]) for language in _LANGUAGES]
      found[path.stem] = [path.stem.replace('_', ' '), *counts]
  return [found[name] for name in sorted(found)]


def _num_lines(function):
  imports = (ast.Import, ast.ImportFrom)
  body = [node for node in function.body if not isinstance(node, imports)]
  return sum(node.end_lineno - node.lineno + 1 for node in body)
