"""Runs a sampler on a model in a process of its own; one judge for all."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import tensorflow as tf

from experiments.quickstart import run as quickstart
from experiments.rivals import here
from experiments.rivals import theirs
from experiments.rivals import truth
from experiments.rivals.models import MODELS
from experiments.run.errors import ConfigError
from tfp_adaptive.posterior import verdict as verdict_lib

__all__ = ['ON_REQUEST', 'SAMPLERS', 'log_densities', 'run']

_FOLDER = pathlib.Path(__file__).parent
_ROOT = _FOLDER.parents[1]
SAMPLERS = (*here.SAMPLERS, *theirs.SAMPLERS)
ON_REQUEST = tuple(filter(truth.is_on_request, theirs.SAMPLERS))
_NUM_LONG_DRAWS = 5000


def run(name, sampler, seed, python, max_seconds):
  """Returns the record of one run; one that fails is a record, too.

  Args:
    name: Key of `models.MODELS`.
    sampler: One of `SAMPLERS`.
    seed: Int.
    python: Path of the other samplers' interpreter, or `None`.
    max_seconds: Of the wall; then the process is ended.

  Raises:
    ConfigError: If the sampler needs an interpreter and none was given.
  """
  head = {'posterior': name, 'sampler': sampler, 'seed': seed}
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    np.savez(folder / 'data.npz', **theirs.load(MODELS[name]).data())
    command = _command(name, sampler, seed, python, folder)
    # Whatever another run has compiled: it is the first that is timed.
    flags = f'compiledir={folder / "compiled"}'
    try:
      _execute(command, flags, max_seconds)
    except subprocess.TimeoutExpired:
      return {**head, 'status': 'out of time', 'max_seconds': max_seconds}
    except subprocess.CalledProcessError as error:
      return {**head, 'status': 'failed', 'error': error.stderr[-2000:]}
    with np.load(folder / 'draws.npz') as file:
      found = dict(file)
  return _record(head, found)


def _execute(command, flags, max_seconds=None):
  """Runs a command with flags of PyTensor."""
  subprocess.run(
    command,
    cwd=_ROOT,
    env={**os.environ, 'PYTENSOR_FLAGS': flags},
    timeout=max_seconds,
    capture_output=True,
    text=True,
    check=True,
  )


def log_densities(name, python, num_points=3):
  """Returns dict of language to log densities [num_points] at the same points.

  Of all unknowns in their own supports; the points are normal, of deviation
  1/2, where TFP's bijectors see no bounds.

  Args:
    name: Key of `models.MODELS`.
    python: Path of the other samplers' interpreter.
    num_points: How many.

  Raises:
    subprocess.CalledProcessError: If a language does not take the model.
  """
  module = theirs.load(MODELS[name])
  data = module.data()
  model = module.tfp_model(**data)
  unbounded = model.experimental_default_event_space_bijector()
  shapes = unbounded.inverse_event_shape(model.event_shape)
  random = np.random.RandomState(0)
  points = unbounded.forward(
    tf.nest.map_structure(
      lambda shape: tf.constant(
        0.5 * random.normal(size=[num_points, *shape]), tf.float32
      ),
      shapes,
    )
  )
  with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    np.savez(folder / 'data.npz', **data)
    arrays = {key: part.numpy() for key, part in points._asdict().items()}
    np.savez(folder / 'points.npz', **arrays)
    files = [folder / f'{stem}.npz' for stem in ('data', 'points', 'densities')]
    command = [python, _FOLDER / 'densities.py', MODELS[name], *files]
    # Three values are no reason to compile C.
    _execute(command, 'cxx=')
    with np.load(folder / 'densities.npz') as file:
      return {'tfp': model.unnormalized_log_prob(points).numpy(), **dict(file)}


def _command(name, sampler, seed, python, folder):
  draws = str(folder / 'draws.npz')
  head = [str(MODELS[name]), str(folder / 'data.npz'), sampler, str(seed)]
  if sampler in here.SAMPLERS:
    return [sys.executable, '-m', 'experiments.rivals.here', *head, draws]
  if python is None:
    raise ConfigError(
      f'{sampler} runs in an environment of its own: write `make peers`, then '
      '`--python .peers/bin/python`.'
    )
  num_draws = _NUM_LONG_DRAWS if sampler in ON_REQUEST else quickstart.NUM_DRAWS
  sizes = [str(quickstart.NUM_CHAINS), str(num_draws)]
  return [python, str(_FOLDER / 'theirs.py'), *head, *sizes, draws]


def _record(head, found):
  """Returns the record of what a process wrote."""
  outcome = quickstart.Outcome(
    *_coordinates(head['posterior'], found),
    {
      key: np.asarray(found[key])
      for key in ('target_log_prob', 'diverging', 'log_accept_ratio')
      if key in found
    },
    float(found['warmup_gradients'] + found['gradients']),
    str(found.get('found', '')),
    float(found['seconds']),
    float(found['cpu_seconds']),
    float(found['warmup_gradients']),
    json.loads(str(found.get('own_converged', 'null'))),
  )
  return {
    'status': 'finished',
    **quickstart.record(*head.values(), outcome, {}),
    'versions': json.loads(str(found['versions'])),
  }


def _coordinates(name, found):
  """Returns names [d] and values [draws, chains, d] of the unknowns."""
  if 'names' in found:
    return found['names'].tolist(), found['values']
  names = _names_of_unknowns(name)
  # Traces hold deterministic values too.
  parts = [found[f'states/{part}'] for part in names]
  return verdict_lib.coordinates(names, parts)


def _names_of_unknowns(name):
  """Returns the names of a model's parts, in the order of its joint law."""
  module = theirs.load(MODELS[name])
  model = module.tfp_model(**module.data())
  # A model without data has no pins.
  draw = getattr(model, 'sample_unpinned', None) or model.sample
  return list(draw(seed=0)._asdict())
