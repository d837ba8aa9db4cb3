"""Writes and reads the file of a posterior: draws, report and sampler.

The file does not hold the model, which is code and must be given again. It
records three facts about the density instead: a digest of its program, a digest
of Python code that the program calls, and values and gradients at three points.
The values reveal changes of anything that program and code read from outside.
"""

import hashlib
import pathlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive._version import __version__
from tfp_adaptive.core import run_warnings
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import code_digest
from tfp_adaptive.driver import probe
from tfp_adaptive.driver import program_digest
from tfp_adaptive.driver import progress
from tfp_adaptive.interfaces import types
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior.model.problem import Problem

_KIND = 'posterior'


class _Density(NamedTuple):
  """A traced density, with the digests that its program and code then had."""

  # [chains, d] -> dict of values [chains] and gradients [chains, d].
  evaluate: Callable
  program: str
  code: str | None  # `None` if the program calls no Python.


class _Recorded(NamedTuple):
  """The density that draws belong to."""

  program: str
  code: str | None
  points: np.ndarray  # [3, chains, d]
  reading: dict  # What `probe.read` finds there, to recognize the density.


def write(path, problem, chains, **others):
  """Writes a file of chains and JSON values, whole or not at all."""
  density = record(problem, chains)
  counts, arrays = chains.to_saved()
  arrays['points'] = density.points
  header = dict(
    kind=_KIND,
    version=__version__,
    coordinates=list(problem.coordinates),
    dtype=problem.dtype.name,
    data=_digests(problem),
    program=density.program,
    code=density.code,
    reading=density.reading,
    chains=counts,
    **others,
  )
  path = pathlib.Path(path)
  path.parent.mkdir(parents=True, exist_ok=True)
  archive.write(path, archive.seal(header, arrays))


def read(path: types.Path) -> tuple[dict, dict]:
  """Returns the header and the arrays of a file that `write` made."""
  path = pathlib.Path(path)
  if not path.exists():
    raise FileNotFoundError(f'There is no file {path}.')
  try:
    header, arrays = archive.unseal(path)
  except archive.Damaged as error:
    if path.is_dir():
      raise ValueError(
        f'{path} is a folder. Pass the file that `Posterior.save` wrote, or '
        '`posterior.npz` in the `checkpoint_dir` of a call.'
      ) from error
    raise ValueError(
      f'{path} is damaged: {error}. Nothing was loaded. Sample again, to '
      'another file.'
    ) from error
  if header.get('kind') != _KIND:
    raise ValueError(
      f'{path} holds no posterior. Pass a file that `Posterior.save` wrote.'
    )
  return header, arrays


def restore(
  path, header, arrays, problem, reports=progress.SILENT, may_differ=False
):
  """Returns the `Chains` of a file that `read` returned, or refuses it.

  The `Problem` is that of the same model and data; messages name the path. If
  the density is another program with the same values, this is a warning with
  `may_differ`, and an error without.
  """
  check_names(path, header, problem)
  _check_data(path, header, problem)
  arrays = dict(arrays)
  draws = arrays['draws']
  density = density_lib.Density(problem, draws.shape[1], draws.dtype)
  try:
    recorded = _Recorded(
      header['program'], header['code'], arrays.pop('points'), header['reading']
    )
    chains = chains_lib.restore(density, header['chains'], arrays, reports)
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'{path} was saved by version {header["version"]}, whose files or '
      f'kernels differ from those of {__version__}. Load it with that version.'
    ) from error
  given = traced(problem, chains.draws.shape[1])
  _check_density(path, recorded, given, may_differ)
  chains.recorded_density = recorded
  return chains


def check_names(path, header, problem):
  """Refuses a model with other unknowns."""
  saved = header['coordinates'], header['dtype']
  given = list(problem.coordinates), problem.dtype.name
  if saved != given:
    (names, dtype), (others, other) = saved, given
    raise ValueError(
      f'{path} belongs to another model: it has {len(names)} coordinates '
      f'({", ".join(names[:4])}, {dtype}), and the given model has '
      f'{len(others)} ({", ".join(others[:4])}, {other}). Pass the model that '
      'was sampled.'
    )


def _check_data(path, header, problem):
  """Refuses a joint distribution with other data."""
  saved, given = header['data'], _digests(problem)
  if saved != given:
    names = sorted(k for k in {*saved, *given} if saved.get(k) != given.get(k))
    raise ValueError(
      f'{path} belongs to other data: they differ in {", ".join(names)}. Pass '
      'the data that were given when it was sampled.'
    )


def _digests(problem):
  """Returns dict of name -> checksum of the observed values."""
  return {
    name: hashlib.sha256(
      b''.join(np.ascontiguousarray(x).tobytes() for x in tf.nest.flatten(part))
    ).hexdigest()
    for name, part in problem.observed.items()
  }


def record(problem: Problem, chains: chains_lib.Chains) -> _Recorded:
  """Returns the `_Recorded` density of chains, and records it if necessary.

  It is recorded soon after the draws, before the user's program can change it.
  """
  if chains.recorded_density is None:
    density = traced(problem, chains.draws.shape[1])
    deviations = np.std(chains.draws, axis=(0, 1), dtype=np.float64)
    # The user's density has the dtype of the model.
    state = np.asarray(chains.state, problem.dtype.as_numpy_dtype)
    # If a coordinate never moved, its deviation is replaced by a share of its
    # size.
    size = np.max(np.abs(state), axis=0)
    scale = np.where(deviations > 0.0, deviations, 0.1 * size + 0.01)
    points = probe.points(tf.constant(state), scale)
    chains.recorded_density = _Recorded(
      density.program,
      density.code,
      np.stack([np.asarray(point) for point in points]),
      probe.read(density.evaluate, points),
    )
  return chains.recorded_density  # pyright: ignore[reportReturnType]


def check_unchanged(problem: Problem, chains: chains_lib.Chains) -> None:
  """Refuses a density that has changed since the draws were made.

  The user's density is traced again, because an earlier trace keeps the old
  values of Python variables.
  """
  saved = record(problem, chains)
  now = density_lib.source.__wrapped__(
    *_arguments(problem, chains.draws.shape[1])
  )
  given = _described(now)
  words = _changed_numbers(saved, given)
  if not words and saved.program != given.program:
    words = 'its program has changed'
  if words:
    raise ValueError(
      f'The log density has changed since the draws were made: {words}. Draws '
      'from two densities cannot be combined. Restore what the density reads '
      '(variables, arrays, tables, files), or call `sample_posterior` again.'
    )


def _check_density(path, saved, given, may_differ):
  """Refuses a density with other values or another program.

  The program is compared too, because a changed prior may have about the same
  values at the chains' states, but other values elsewhere.
  """
  words = _changed_numbers(saved, given)
  if words:
    raise ValueError(
      f'{path} belongs to another model or other data: {words}. Pass the model '
      'and the data that were sampled.'
    )
  changed = [
    name
    for name in ('program', 'code')
    if getattr(saved, name) != getattr(given, name)
  ]
  if not changed:
    return
  what = dict(
    program='another program of the log density: another model, other numbers '
    'in its code, or another version of TensorFlow',
    code='other Python code behind the log density, or other data of that code',
  )[changed[0]]
  message = (
    f'{path} was written with {what}. The values of both densities agree where '
    'the chains are, but may differ elsewhere. '
  )
  if not may_differ:
    raise ValueError(
      f'{message}Pass the model that was sampled, or another `checkpoint_dir`. '
      '`tfpa.load_posterior` reads the draws that were made so far.'
    )
  run_warnings.warn(f'{message}The draws belong to the model that was saved.')


def _changed_numbers(saved, given):
  """Returns how two densities differ at the recorded points, or ''."""
  found = probe.read(given.evaluate, [tf.constant(x) for x in saved.points])
  return probe.differences(saved.reading, found, 'where the chains were')


def traced(problem: Problem, num_chains: int) -> _Density:
  """Returns the `_Density` of a problem, traced or from its last trace."""
  return _described(density_lib.source(*_arguments(problem, num_chains)))


def _arguments(problem, num_chains):
  target = problem.target_log_prob_fn
  return target, num_chains, problem.event_size, problem.dtype


def _described(source):
  """Returns the `_Density` of a `density.Source`."""

  def evaluate(rows):
    value, gradient = source.entry.function(rows)
    return {'log density': value, 'gradient': gradient}

  program = program_digest.describe(source.traced)
  code = None
  if program.calls_python:
    code = code_digest.digest(source.target)
  return _Density(evaluate, program.digest, code)
