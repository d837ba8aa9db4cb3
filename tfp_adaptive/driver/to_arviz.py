"""Turns draws into ArviZ's form: a `DataTree`, by name, chains first.

Quantities in ArviZ's schema have its names, see
https://python.arviz.org/en/stable/schema/schema.html. ArviZ and xarray are
imported when draws are made, because the imports take half a second.
"""

import numpy as np
import tensorflow as tf

from tfp_adaptive._version import __version__
from tfp_adaptive.core import state_parts

_NAMES = dict(is_accepted='accepted', hyper_is_accepted='hyper_accepted')
_GROUPS = ('posterior', 'sample_stats')
_LOG_PROB_NAMES = ('lp', 'log_likelihood')
_TAKEN = ('chain', 'draw')  # Names of dimensions.


def variables(states, num_chain_dims, names=None):
  """Returns dict of name -> [chains, draws, event...].

  `states` are arrays [draws, chains..., event...], or a structure of them, with
  names in the order of `tf.nest.flatten`. A str names one part. Without
  `names`, those of `state_parts.names` are used.
  """
  return {
    name: _chains_first(part, num_chain_dims)
    for name, part in zip(checked_names(states, names), tf.nest.flatten(states))
  }


def checked_names(states, names=None):
  """Returns the names of all parts, or refuses them, see `variables`."""
  num_parts = len(tf.nest.flatten(states))
  found = state_parts.names(states) if names is None else names
  found = [found] if isinstance(found, str) else list(found)
  if len(found) != num_parts or not are_names(found):
    raise ValueError(
      f'The {num_parts} part(s) of the state need {num_parts} different names '
      f'without slashes, other than {" and ".join(map(repr, _TAKEN))}, but got '
      f'{found!r}. Rename them in the model, or for a `SampleResult` write '
      f'for example `to_arviz(names={[f"x{i}" for i in range(num_parts)]})`.'
    )
  return found


def allowed_names(structure, names=None):
  """Returns the names of all parts, changed if ArviZ does not allow them.

  `chain`, a dimension's name, becomes `chain_`, and a/b becomes a_b. `_` is
  added again while another part has that name.
  """
  found = state_parts.names(structure) if names is None else names
  taken = {*_TAKEN, *(name for name in found if are_names([name]))}
  allowed = []
  for name in found:
    if not are_names([name]):
      name = name.replace('/', '_')
      while name in taken:
        name += '_'
      taken.add(name)
    allowed.append(name)
  return allowed


def are_names(found):
  """Returns whether all names differ and ArviZ allows them for variables."""
  return len(set(found)) == len(found) and all(
    isinstance(n, str) and n not in _TAKEN and n and '/' not in n for n in found
  )


def sample_stats(trace, log_prob_name='lp'):
  """Returns dict of name -> [chains, draws] of the trace of a `SampleResult`.

  The names are `lp`, `acceptance_rate` (min(1, e^ratio) of each proposal),
  `accepted`, `diverging`. A scalar of a draw is repeated for all chains. Parts
  of `extra` with a number for each chain are included. If their name is taken,
  they are called `extra_...`.
  """
  shape = trace['target_log_prob'].shape
  stats = {}
  for name, rows in _columns(trace).items():
    if name == 'log_accept_ratio':
      name = 'acceptance_rate'
      rows = np.exp(np.minimum(np.nan_to_num(rows, nan=-np.inf), 0.0))
    elif name == 'target_log_prob':
      name = log_prob_name
    if rows.shape == shape[:1]:
      rows = np.broadcast_to(rows.reshape(-1, *[1] * len(shape[1:])), shape)
    if rows.shape == shape:
      stats[_NAMES.get(name, name)] = _chains_first(rows, len(shape) - 1)
  return stats


def tree(groups, attributes, coords=None, dims=None):
  """Returns the `DataTree` of groups: {group: {name: array}}.

  `coords` has the labels of a dimension. `dims` has the names of an array's
  dimensions, without chain and draw.
  """
  import arviz_base

  made = arviz_base.from_dict(
    {k: group for k, group in groups.items() if group},
    coords={
      name: np.asarray(labels) for name, labels in (coords or {}).items()
    },
    dims={name: list(names) for name, names in (dims or {}).items()},
  )
  made.attrs.update(described(attributes))
  return made


def opened(states, attributes, names=None):
  """Returns the `DataTree` of `LazyDraws`, which are read only when used."""
  import xarray

  folder = tf.nest.flatten(states)[0].folder
  # `chunks=None` avoids dask, so that arrays are numpy arrays as in `tree`.
  made = xarray.open_datatree(folder, engine='zarr', chunks=None)
  groups = {name: made[name].to_dataset() for name in _GROUPS}
  renamed = {}
  for old, new, part in zip(
    checked_names(states),
    checked_names(states, names),
    tf.nest.flatten(states),
  ):
    renamed[old] = new
    for i in range(part.ndim):
      renamed[f'{old}_dim_{i}'] = f'{new}_dim_{i}'
  posterior = groups['posterior']
  groups['posterior'] = posterior.rename(
    {old: new for old, new in renamed.items() if old in posterior.variables}
  )
  made = xarray.DataTree.from_dict(groups)
  made.attrs.update(described(attributes))
  return made


def described(attributes):
  """Returns `attributes` with the name and version of this library."""
  return {
    'inference_library': 'tfp_adaptive',
    'inference_library_version': __version__,
    **{k: v for k, v in attributes.items() if v is not None},
  }


def _columns(trace):
  """Returns dict of name -> array; `extra` of the user is split by name."""
  columns = {name: rows for name, rows in trace.items() if name != 'extra'}
  if 'extra' in trace:
    extra = trace['extra']
    names = state_parts.names(extra) if tf.nest.is_nested(extra) else ['extra']
    taken = {*columns, *_NAMES.values(), *_LOG_PROB_NAMES, *_TAKEN}
    taken.add('acceptance_rate')
    for name, rows in zip(names, tf.nest.flatten(extra)):
      columns[f'extra_{name}' if name in taken else name] = rows
  return columns


def _chains_first(rows, num_chain_dims):
  """Returns [chains, draws, event...] for rows [draws, chains..., event...]."""
  event = rows.shape[1 + num_chain_dims :]
  num_chains = int(np.prod(rows.shape[1 : 1 + num_chain_dims]))
  return np.swapaxes(rows.reshape(len(rows), num_chains, *event), 0, 1)
