"""A posterior in a file: all but its model, which is code."""

import hashlib
import pathlib
import warnings
import weakref

import numpy as np
import tensorflow as tf

from tfp_adaptive._version import __version__
from tfp_adaptive.core import custom_gradient
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import program_digest
from tfp_adaptive.posterior import chains as chains_lib

__all__ = ['check_names', 'read', 'restore', 'write']

_KIND = 'posterior'
_TOLERANCE = {tf.float32: 1e-4, tf.float64: 1e-8}  # Of log densities.
_PROGRAMS = weakref.WeakKeyDictionary()  # Density -> digest.


def write(path, problem, chains, **others):
  """Writes chains and JSON values, whole or not at all.

  Args:
    path: Of the file; its folder is made.
    problem: `problem.Problem`.
    chains: `chains.Chains`.
    **others: What `read` returns in its header.

  Raises:
    OSError: If it cannot be written.
  """
  counts, arrays = chains.to_saved()
  header = dict(
    kind=_KIND,
    version=__version__,
    coordinates=list(problem.coordinates),
    dtype=problem.dtype.name,
    data=_digests(problem),
    program=chains.other_program or _program(problem, chains.draws.shape[1]),
    chains=counts,
    **others,
  )
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  archive.write(path, archive.seal(header, arrays))


def read(path):
  """Returns the header and the arrays of a file.

  Raises:
    FileNotFoundError: If there is none.
    ValueError: If it is damaged, or was not written here.
  """
  path = pathlib.Path(path)
  if not path.exists():
    raise FileNotFoundError(f'There is no file {path}.')
  try:
    header, arrays = archive.unseal(path)
  except archive.Damaged as error:
    raise ValueError(
      f'{path} is damaged: {error}. Nothing was loaded; sample again, to '
      'another file.'
    ) from error
  if header.get('kind') != _KIND:
    raise ValueError(
      f'{path} holds no posterior. Pass a file that `Posterior.save` wrote.'
    )
  return header, arrays


def restore(path, header, arrays, problem, progress=False, goes_on=False):
  """Returns the `Chains` of a file that was read.

  Args:
    path: To name.
    header: Of `read`.
    arrays: Of `read`.
    problem: The `Problem` of the same model.
    progress: Whether they tell how they go on.
    goes_on: Whether draws are to be added: then another program of the density
      is refused, else told.

  Raises:
    ValueError: If the file is of another model, data or version.
  """
  check_names(path, header, problem)
  _check_data(path, header, problem)
  _check_density(path, arrays, problem)
  other_program = _other_program(path, header, arrays, problem, goes_on)
  try:
    chains = chains_lib.restore(problem, header['chains'], arrays, progress)
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'{path} was saved by version {header["version"]}, whose kernels are not '
      f'those of {__version__}: load it with that version.'
    ) from error
  chains.other_program = other_program
  return chains


def check_names(path, header, problem):
  """Refuses a model of other unknowns."""
  saved = header['coordinates'], header['dtype']
  given = list(problem.coordinates), problem.dtype.name
  if saved != given:
    (names, dtype), (others, other) = saved, given
    raise ValueError(
      f'{path} is of another model: it has {len(names)} coordinates '
      f'({", ".join(names[:4])}, {dtype}), the model given '
      f'{len(others)} ({", ".join(others[:4])}, {other}). Pass the model of '
      'then.'
    )


def _check_data(path, header, problem):
  """Refuses a joint distribution with other values."""
  if header['data'] != _digests(problem):
    saved, given = header['data'], _digests(problem)
    names = sorted(k for k in {*saved, *given} if saved.get(k) != given.get(k))
    raise ValueError(
      f'{path} is of other data: they differ in {", ".join(names)}. Pass the '
      'data of then.'
    )


def _digests(problem):
  """Returns dict of name -> checksum of the values that were given."""
  return {
    name: hashlib.sha256(
      b''.join(np.ascontiguousarray(x).tobytes() for x in tf.nest.flatten(part))
    ).hexdigest()
    for name, part in problem.observed.items()
  }


def _program(problem, num_chains):
  """Returns a digest of the density's program, its constants among it.

  `None` where it calls Python, which no digest is of.
  """
  target = problem.target_log_prob_fn
  if target not in _PROGRAMS:

    @tf.function(autograph=False)
    def density(rows):
      value = target(rows)
      # What bijectors registered would keep the graph in memory.
      custom_gradient.let_go(tf.compat.v1.get_default_graph())
      return value

    rows = tf.TensorSpec([num_chains, problem.event_size], problem.dtype)
    found = program_digest.describe(density.get_concrete_function(rows))
    _PROGRAMS[target] = None if found.calls_python else found.digest
  return _PROGRAMS[target]


def _other_program(path, header, arrays, problem, goes_on):
  """Returns the digest of another density of then; tells it, or refuses.

  What a prior changes may be little where the chains are, or far from it.
  """
  saved = header.get('program')
  given = _program(problem, arrays['draws'].shape[1])
  if None in (saved, given) or saved == given:
    return None
  message = (
    f'{path} was written with another program of the log density: of another '
    'model, of numbers in its code, or of another version of TensorFlow. Where '
    'the chains are, its values are much the same. '
  )
  if goes_on:
    raise ValueError(
      f'{message}Pass the model of then, or another `checkpoint_dir`; what was '
      'drawn so far is read by `tfpa.load_posterior`.'
    )
  warnings.warn(f'{message}The draws are of the one of then.', stacklevel=4)
  return saved


def _check_density(path, arrays, problem):
  """Refuses a model that has another density where the chains are."""
  saved = arrays['trace_target_log_prob'][-1]
  given = problem.target_log_prob_fn(tf.constant(arrays['0'])).numpy()
  excess = np.abs(given - saved)
  excess -= _TOLERANCE[problem.dtype] * (1.0 + np.abs(saved))
  if not np.all(excess <= 0.0):
    worst = int(np.argmax(np.where(np.isnan(excess), np.inf, excess)))
    raise ValueError(
      f'{path} is of another model or other data: where its chain {worst} is, '
      f'the log density was {saved[worst]:.6g}, and that of the model given is '
      f'{given[worst]:.6g}. Pass the model and data of then.'
    )
