"""Means that long runs of two other libraries agree on, and errors from them.

A sampler that other runs are judged by is none of ours. Where a model has a
form that is easier to sample, the runs are of that form: its coordinates of the
same name have the same law.
"""

import collections
import math

__all__ = [
  'FAR',
  'is_long',
  'is_long_name',
  'is_of_more_draws',
  'is_on_request',
  'truths',
  'worst_error',
]

FAR = 4.0  # Standard errors.
_EASIER = {
  'eight_schools': 'eight_schools_non_centered',
  'varying_slopes_centered': 'varying_slopes',
}
# Parts whose law has no variance, so that no draws tell the error of a mean.
# Where these scales are large the slab alone bounds the weights, the likelihood
# is constant, and the tails are those of the prior: half-Cauchy, and the -3rd
# power of InverseGamma(2, 8).
_WITHOUT_VARIANCE = {'horseshoe': ('local', 'tau', 'slab')}


def is_long_name(sampler):
  """Whether truths are made of runs of that sampler."""
  return sampler.endswith('long')


def is_of_more_draws(sampler):
  """Whether it is a default one that draws five times as much."""
  return sampler.endswith('5000 draws')


def is_on_request(sampler):
  """Whether it is run where it is asked for: it makes truths, or draws more."""
  return is_long_name(sampler) or is_of_more_draws(sampler)


def is_long(record):
  """Whether a record is one that truths are made of."""
  return is_long_name(record['sampler'])


def truths(records):
  """Returns {model: {coordinate: (mean, standard error)}}.

  Of models that two libraries have run long, both with a verdict of converged,
  of which the last counts; coordinates on which they differ by more than four
  standard errors are left out, and those of no variance.

  Args:
    records: Of `run.run`.
  """
  by_model = collections.defaultdict(dict)
  for record in records:
    if is_long(record) and record.get('converged'):
      library = record['sampler'].split(',')[0]
      by_model[record['posterior']][library] = record['means']
  known = {
    model: _agreed(*means.values())
    for model, means in by_model.items()
    if len(means) == 2
  }
  for model, parts in _WITHOUT_VARIANCE.items():
    if model in known:
      known[model] = {
        name: value
        for name, value in known[model].items()
        if name.partition('[')[0] not in parts
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


def worst_error(record, known):
  """Returns the largest error of a mean in standard errors of both.

  None where nothing is known.

  Args:
    record: Of `run.run`.
    known: Of `truths`.
  """
  exact = known.get(record['posterior'], {})
  errors = [
    abs(mean - exact[name][0]) / math.hypot(error, exact[name][1])
    for name, (mean, error) in record['means'].items()
    if name in exact
  ]
  return max(errors, default=None)
