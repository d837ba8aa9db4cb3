"""Models of posteriordb have the densities of the Stan programs.

Points are drawn about the published means. Log densities are compared with a
transcription of the programs, as differences between points, in the space of
the programs' parameters.
"""

import json
import os
import pathlib

import numpy as np
import pytest
import tensorflow as tf

from experiments.data import datasets
from experiments.models import posteriordb
from experiments.models.posteriordb.posterior import named
from tests.experiments.models import stan_targets

_ROOT = pathlib.Path(__file__).resolve().parents[3]
_NUM_POINTS = 4


def _folder():
  """Returns the folder of the data, or `None`."""
  given = os.environ.get(datasets.DATA_DIR_VARIABLE)
  parents = [given] if given else [_ROOT.parent / 'shared' / 'data']
  for parent in parents:
    path = pathlib.Path(parent) / 'posteriordb'
    if (path / 'reference.json').is_file():
      return path
  return None


FOLDER = _folder()
needs_data = pytest.mark.skipif(
  FOLDER is None, reason='The data of posteriordb are not there.'
)


def _reference(name):
  text = (FOLDER / 'reference.json').read_text()
  return json.loads(text)[name]['parameters']


def _points(name, posterior, dtype=np.float64):
  """Returns dict of part -> [points, ...]: about the published means.

  Parts that are not among the published parameters are standard normal.
  """
  random = np.random.default_rng(0)
  reference = _reference(name)
  points = {}
  for part, shape in posterior.model.event_shape._asdict().items():
    if part in posterior.pins:
      continue
    noise = random.normal(size=[_NUM_POINTS, *shape])
    like = {part.rstrip('_'): noise[np.newaxis]}
    keys = list(named(like))
    if keys[0] in reference:
      mean, deviation = (
        np.reshape([reference[key][word] for key in keys], shape)
        for word in ('mean', 'sd')
      )
      noise = _inside(part, mean + 0.5 * deviation * noise, mean)
    points[part] = noise.astype(dtype)
  return points


def _inside(part, values, mean):
  """Moves values into the supports of the programs' parameters."""
  if part in ('theta1', 'theta2'):
    values = np.abs(values)
    return values / values.sum(axis=-1, keepdims=True)
  return np.abs(values) if part in ('sigma', 'tau', 'rho') else values


def _log_prob(posterior, points):
  """Returns log densities of the model, [points]."""
  pinned = posterior.model.experimental_pin(**posterior.pins)
  # In a graph, where loops are fast.
  function = tf.function(pinned.unnormalized_log_prob, autograph=False)
  points = {part: tf.constant(x) for part, x in points.items()}
  return np.asarray(function(**points))


def _target(name, data, points):
  """Returns log densities of the Stan program, [points]."""
  target = stan_targets.TARGETS[name.partition('-')[2]]
  renamed = {part.rstrip('_'): np.float64(x) for part, x in points.items()}
  return np.array(
    [
      target(data, **{part: x[i] for part, x in renamed.items()})
      for i in range(_NUM_POINTS)
    ]
  )


def _differences(values):
  return values - values[0]


# Largest errors of float64 that do not come from the sums: of the solution of
# the differential equation, and of a nearly singular covariance.
_OTHER_ERRORS = {
  'hudson_lynx_hare-lotka_volterra': 1e-4,
  'gp_pois_regr-gp_pois_regr': 1e-4,
}


# One posterior of every model function, and some of the regressions.
_KINDS = (
  'arK-arK',
  'bball_drive_event_0-hmm_drive_0',
  'diamonds-diamonds',
  'eight_schools-eight_schools_noncentered',
  'gp_pois_regr-gp_pois_regr',
  'gp_pois_regr-gp_regr',
  'hudson_lynx_hare-lotka_volterra',
  'kidiq-kidscore_interaction',
  'kidiq_with_mom_work-kidscore_interaction_z',
  'kilpisjarvi_mod-kilpisjarvi',
  'mesquite-logmesquite_logvas',
  'nes2000-nes',
  'sblri-blr',
)


@needs_data
@pytest.mark.parametrize('name', _KINDS)
def test_the_density_is_that_of_the_stan_program(name):
  posterior = posteriordb.build(name, FOLDER, tf.float64)
  points = _points(name, posterior)
  found = _log_prob(posterior, points)
  data = posteriordb.published_data(name, FOLDER)
  expected = _target(name, data, points)
  error = _differences(found) - _differences(expected)
  tolerance = 1e-13 * len(np.ravel(list(posterior.pins.values())[-1]))
  tolerance *= 1.0 + np.abs(expected).max()
  tolerance += _OTHER_ERRORS.get(name, 0.0)
  assert np.abs(error).max() < tolerance
  # Points differ by much more than this, or agreement would say nothing.
  assert np.ptp(expected) > 100.0 * tolerance
  assert found.shape == (_NUM_POINTS,)


@needs_data
@pytest.mark.parametrize(
  'name, part, factor',
  [
    ('kidiq-kidscore_interaction', 'sigma', 1.01),
    ('nes2000-nes', 'beta', 1.01),
    ('arK-arK', 'alpha', 1.2),
    ('bball_drive_event_0-hmm_drive_0', 'lambda_', 1.01),
    ('hudson_lynx_hare-lotka_volterra', 'theta', 1.001),
  ],
)
def test_a_small_change_of_an_unknown_is_seen(name, part, factor):
  posterior = posteriordb.build(name, FOLDER, tf.float64)
  points = _points(name, posterior)
  data = posteriordb.published_data(name, FOLDER)
  expected = _target(name, data, points)
  points[part] = factor * points[part]
  found = _log_prob(posterior, points)
  assert np.abs(_differences(found) - _differences(expected)).max() > 1e-3


@needs_data
@pytest.mark.parametrize('name', posteriordb.NAMES)
def test_draws_are_reported_by_the_names_of_the_reference(name):
  posterior = posteriordb.build(name, FOLDER, tf.float64)
  points = _points(name, posterior)
  draws = {part: x[:, np.newaxis] for part, x in points.items()}
  found = named(posterior.reported(draws))
  assert set(found) == set(_reference(name))
  assert all(part.shape == (_NUM_POINTS, 1) for part in found.values())


def test_schools_and_processes_are_what_the_programs_compute():
  data = {'y': np.zeros(2), 'sigma': np.ones(2)}
  schools = posteriordb.MODELS['eight_schools-eight_schools_noncentered'](
    data, tf.float64
  )
  states = {
    'theta_trans': np.float64([[[1.0, -2.0]]]),
    'mu': np.float64([[10.0]]),
    'tau': np.float64([[3.0]]),
  }
  np.testing.assert_array_equal(
    schools.reported(states)['theta'], [[[13.0, 4.0]]]
  )
  data = {'x': np.float64([0.0, 1.0]), 'k': np.zeros(2)}
  process = posteriordb.MODELS['gp_pois_regr-gp_pois_regr'](data, tf.float32)
  states = {
    'rho': np.float32([[2.0]]),
    'alpha': np.float32([[3.0]]),
    'f_tilde': np.float32([[[1.0, 2.0]]]),
  }
  correlation = np.exp(-1 / 8)
  second = correlation + 2 * np.sqrt(1 - correlation**2)
  np.testing.assert_allclose(
    process.reported(states)['f'], [[[3.0, 3.0 * second]]], rtol=1e-6
  )
