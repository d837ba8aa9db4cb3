"""Models in other languages: the same density, gradient, names and draws."""

import collections
import importlib.util

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.fits import conditional
from tfp_adaptive.fits import natural
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior.engines import program
from tfp_adaptive.posterior.engines import python_program
from tfp_adaptive.posterior.engines import retries
from tfp_adaptive.posterior.model import problem as problem_lib

_HAS_JAX = importlib.util.find_spec('jax') is not None
if _HAS_JAX:
  import jax
  import jax.numpy as jnp
_needs_jax = pytest.mark.skipif(
  not _HAS_JAX, reason='the extra jax is not installed'
)
tfb = tfp.bijectors

_X = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
_Y = np.random.default_rng(1).normal(size=20).astype(np.float32)
_ROWS = np.random.default_rng(2).normal(size=(5, 3))
_FEW = dict(num_draws=250, min_ess=100, progress=False)
_BIJECTORS = dict(scale=tfb.Exp())


def _regression(weights, scale):
  residuals = (_Y - tf.linalg.matvec(tf.cast(_X, scale.dtype), weights)) / (
    scale[..., tf.newaxis]
  )
  value = -0.5 * tf.reduce_sum(residuals**2, -1) - 20.0 * tf.math.log(scale)
  return value - 0.5 * tf.reduce_sum(weights**2, -1) - scale


def _in_jax(unknowns):
  weights, scale = unknowns['weights'], unknowns['scale']
  residuals = (_Y - _X @ weights) / scale
  value = -0.5 * jnp.sum(residuals**2) - 20.0 * jnp.log(scale)
  return value - 0.5 * jnp.sum(weights**2) - scale


def _in_numpy(vector):
  scale, weights = vector[0], vector[1:]
  residuals = (_Y - _X @ weights) / scale
  square = np.sum(residuals**2)
  value = -0.5 * square - 20.0 * np.log(scale)
  by_scale = square / scale - 20.0 / scale - 1.0
  by_weights = _X.T @ residuals / scale - weights
  value += -0.5 * np.sum(weights**2) - scale
  return value, np.append(by_scale, by_weights)


_INIT = {'weights': np.zeros(2), 'scale': 1.0}


def _from_numpy():
  shapes = dict(scale=(), weights=2)
  return tfpa.models.from_numpy(_in_numpy, shapes, _BIJECTORS)


def _from_jax():
  return tfpa.models.from_jax(_in_jax, _INIT, _BIJECTORS)


def _from_jax_of_chains():
  return tfpa.models.from_jax(
    jax.vmap(_in_jax), _INIT, _BIJECTORS, vectorized=True
  )


def _with_lapack(unknowns):
  factor = jnp.linalg.cholesky(jnp.eye(2) * unknowns['scale'])
  return _in_jax(unknowns) + 0.0 * factor[0, 0]


def _from_jax_with_lapack():
  return tfpa.models.from_jax(_with_lapack, _INIT, _BIJECTORS)


def _known():
  init = dict(
    weights=tf.TensorSpec([2], tf.float64), scale=tf.TensorSpec([], tf.float64)
  )
  return problem_lib.of_density(_regression, init, _BIJECTORS, len(_ROWS))


def _evaluated(problem):
  return density_lib.Density(problem, len(_ROWS)).evaluate(_ROWS)


@pytest.mark.parametrize(
  'make',
  [
    _from_numpy,
    pytest.param(_from_jax, marks=_needs_jax),
    pytest.param(_from_jax_of_chains, marks=_needs_jax),
    pytest.param(_from_jax_with_lapack, marks=_needs_jax),
  ],
)
def test_density_and_gradient_are_those_of_the_model(make):
  model, known = make(), _known()
  problem = problem_lib.of_model(model, len(_ROWS))
  assert problem.names == known.names == ('scale', 'weights')
  assert problem.coordinates == known.coordinates
  is_called = make in (_from_numpy, _from_jax_with_lapack)
  assert (problem.in_python is not None) == is_called
  expected = _evaluated(known)
  for found in (
    _evaluated(problem),
    _evaluated(problem._replace(in_python=None)),
  ):
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-11, atol=1e-12)


def test_steps_in_python_are_those_of_the_compiled_program():
  problem = _known()
  density = density_lib.Density(problem, len(_ROWS))
  compiled = density.steps()
  called = python_program.PythonProgram(
    lambda rows: [
      x.numpy() for x in density.program(len(_ROWS))(tf.constant(rows))
    ]
  )
  params = conditional.Params(natural.of_scale(3, [0]), 0.1 * np.eye(3))
  rows = params.inverse(_ROWS)
  states, log_det, pull = params.forward(rows)
  values, gradients = density.evaluate(states)
  rng = np.random.default_rng(0)
  kept = rng.normal(size=rows.shape), np.array([0.3, -0.9, 0.9, 0.0, 0.1])
  point = program.Point(
    rows, states, values, gradients, log_det, pull(gradients), *kept
  )
  noise = program.Noise(
    np.array([1, 4, 2, 1]),
    np.array([0.5, 0.0, 0.9, 0.5]),
    rng.normal(size=(4, 5, 3)),
    rng.uniform(size=(4, 5)),
    rng.uniform(size=(4, 5)),
  )
  noise.retries[-1] = retries.NEVER
  found = [
    one.run(one.as_data(params), point, 1.5, noise)
    for one in (compiled, called)
  ]
  assert 0 < np.mean(found[0][1].is_accepted) < 1
  # With one, two and three trajectories.
  assert set(found[0][1].lengths // noise.lengths) == {1, 4, 5}
  for one, other in zip(*map(tf.nest.flatten, found), strict=True):
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
  'make', [_from_numpy, pytest.param(_from_jax, marks=_needs_jax)]
)
def test_a_posterior_has_the_moments_of_the_same_model_in_tensorflow(make):
  found = [
    tfpa.sample_posterior(model, seed=1, **_FEW, **options)
    for model, options in [
      (make(), {}),
      (
        _regression,
        dict(
          init=dict(
            weights=tf.TensorSpec([2], tf.float64),
            scale=tf.TensorSpec([], tf.float64),
          ),
          bijectors=_BIJECTORS,
        ),
      ),
    ]
  ]
  assert all(posterior.converged for posterior in found)
  one, other = (posterior.summary() for posterior in found)
  error = np.hypot(one['sd'], other['sd']) / np.sqrt(one['bulk'])
  assert np.all(np.abs(one['mean'] - other['mean']) < 5.0 * error)
  words = str(found[0].report)
  assert ('steps in NumPy' in words) == (make is _from_numpy)


@_needs_jax
def test_jax_computes_in_float64_without_its_switch():
  assert not jax.config.jax_enable_x64
  dtypes = []
  model = tfpa.models.from_jax(
    lambda x: dtypes.append(x.dtype) or -0.5 * jnp.sum(x**2), jnp.zeros(2)
  )
  problem = problem_lib.of_model(model, 5)
  assert problem.dtype == tf.float64 and set(map(str, dtypes)) == {'float64'}
  far = density_lib.Density(problem, 5).evaluate(np.full([5, 2], 1e4 + 1e-5))
  np.testing.assert_allclose(far[0], -((1e4 + 1e-5) ** 2), rtol=1e-15)
  assert not jax.config.jax_enable_x64


def test_draws_are_shown_as_the_model_says():
  model = tfpa.models.from_numpy(
    lambda x: (-0.5 * np.sum(x**2), -x),
    dict(theta=3),
    shown=lambda x: dict(theta=x, largest=np.max(x)),
    coords=dict(side=['left', 'middle', 'right']),
    dims=dict(theta=['side']),
  )
  posterior = tfpa.sample_posterior(model, **_FEW)
  draws = posterior.draws.posterior
  np.testing.assert_array_equal(
    draws.largest, np.max(draws.theta.values, axis=-1)
  )
  assert list(draws.side.values) == ['left', 'middle', 'right']


@pytest.mark.full
def test_points_without_a_density_are_rejected():
  def inside(vector):
    if np.abs(vector[0]) > 2.5:
      raise ArithmeticError('outside')
    return -0.5 * vector[0] ** 2, -vector

  posterior = tfpa.sample_posterior(
    tfpa.models.from_numpy(inside, dict(x=())), **_FEW
  )
  assert np.abs(posterior.states['x']).max() < 2.5


def _broken(vector):
  if np.abs(vector[0]) > 0.5:
    raise KeyError('a mistake')
  return -np.sum(vector**2), -2.0 * vector


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: tfpa.models.from_numpy(_broken, {}), 'no unknowns'),
    (lambda: tfpa.models.from_numpy(_broken, dict(x=[2.5])), 'name -> shape'),
    (
      lambda: tfpa.sample_posterior(_from_numpy(), y=1.0),
      'y: a model of `tfpa.models` has its unknowns',
    ),
    (
      lambda: tfpa.sample_posterior(
        tfpa.models.from_numpy(lambda x: (0.0, x[:1]), dict(x=2))
      ),
      r'gradient of shape \(1,\), but the unknowns of `init` are 2 numbers',
    ),
    (
      lambda: tfpa.sample_posterior(_from_numpy(), dims=dict(weight=['w'])),
      "`dims` has 'weight', which is no part",
    ),
    (
      lambda: tfpa.sample_posterior(
        _from_numpy(), dims=dict(weights=['w']), coords=dict(w=[1, 2, 3])
      ),
      "3 labels of 'w', but 'weights' has 2",
    ),
  ],
)
def test_what_cannot_be_sampled_is_refused_with_a_sentence(make, message):
  with pytest.raises(ValueError, match=message):
    make()


@_needs_jax
def test_unknowns_in_jax_go_by_name_and_not_by_place():
  # `jax.tree` keeps the order of these dicts, and `tf.nest` sorts it.
  inner = collections.OrderedDict(q=1.0, p=1.0)
  init = [collections.OrderedDict(z=np.zeros(2), y=inner)]

  def log_prob(x):
    (x,) = x
    z, y = x['z'], x['y']
    return z[0] - 10.0 * z[1] + 100.0 * y['q'] - 1000.0 * y['p']

  model = tfpa.models.from_jax(
    log_prob,
    init,
    [dict(y=dict(p=tfb.Exp()))],
    shown=lambda x: dict(p=x[0]['y']['p'], z=x[0]['z']),
  )
  problem = problem_lib.of_model(model, 4)
  assert problem.coordinates == ('x0.y.p', 'x0.y.q', 'x0.z[0]', 'x0.z[1]')
  rows = tf.constant([[1.0, 2.0, 3.0, 4.0]], tf.float64)
  with tf.GradientTape() as tape:
    tape.watch(rows)
    value = problem.target_log_prob_fn(rows)
  p = np.exp(1.0)
  np.testing.assert_allclose(value, [3.0 - 40.0 + 200.0 - 1000.0 * p + 1.0])
  np.testing.assert_allclose(
    tape.gradient(value, rows), [[1.0 - 1000.0 * p, 100.0, 1.0, -10.0]]
  )
  shown = problem.constrain(rows)
  np.testing.assert_allclose(shown['p'], [p])
  np.testing.assert_allclose(shown['z'], [[3.0, 4.0]])
  with pytest.raises(ValueError, match='without `None` and classes'):
    tfpa.models.from_jax(lambda x: x['a'], dict(a=0.0, b=None))


@_needs_jax
def test_unknowns_in_jax_are_floating_numbers():
  with pytest.raises(ValueError, match='no unknowns'):
    tfpa.models.from_jax(_in_jax, {})
  with pytest.raises(ValueError, match='continuous unknowns'):
    tfpa.models.from_jax(_in_jax, {'k': 3})


def test_an_error_that_is_no_missing_density_is_the_users_own():
  with pytest.raises(KeyError, match='a mistake'):
    tfpa.sample_posterior(tfpa.models.from_numpy(_broken, dict(x=1)))


def _schools(spreads, y=None):
  numpyro = importlib.import_module('numpyro')
  dist = importlib.import_module('numpyro.distributions')
  mean = numpyro.sample('mean', dist.Normal(0.0, 5.0))
  spread = numpyro.sample('spread', dist.HalfNormal(5.0))
  with numpyro.plate('school', len(spreads)):
    effect = numpyro.sample('effect', dist.Normal(mean, spread))
    numpyro.sample('y', dist.Normal(effect, spreads), obs=y)
  numpyro.deterministic('double', 2.0 * mean)


_SPREADS, _EFFECTS = np.array([15.0, 10.0, 16.0]), np.array([28.0, 8.0, -3.0])


def _log_prob_of_schools(mean, spread, effect):
  def normal(x, mean, scale):
    return -0.5 * ((x - mean) / scale) ** 2 - np.log(scale)

  value = normal(mean, 0.0, 5.0) + normal(spread, 0.0, 5.0) + np.log(spread)
  value += np.sum(normal(effect, mean, spread))
  return value + np.sum(normal(_EFFECTS, effect, _SPREADS))


def _check_schools(problem, order):
  """Compares differences of log densities: constants may be left out."""
  rows = np.random.default_rng(0).normal(size=(4, 5))
  values, _ = density_lib.Density(problem, 4).evaluate(rows)
  expected = []
  for row in rows:
    unknowns = dict(zip(order, row[:2])) if order[0] != 'effect' else {}
    effect = row[2:]
    if order[0] == 'effect':
      effect, unknowns = row[:3], dict(zip(order[1:], row[3:]))
    unknowns['spread'] = np.exp(unknowns['spread'])
    expected.append(_log_prob_of_schools(**unknowns, effect=effect))
  np.testing.assert_allclose(np.diff(values), np.diff(expected), rtol=1e-10)


def test_a_model_of_numpyro_keeps_density_names_and_plates():
  pytest.importorskip('numpyro', reason='the extra numpyro is not installed')
  model = tfpa.models.from_numpyro(_schools, _SPREADS, y=_EFFECTS)
  problem = problem_lib.of_model(model, 4)
  _check_schools(problem, ['effect', 'mean', 'spread'])
  assert problem.names == ('double', 'effect', 'mean', 'spread')
  assert problem.dims == dict(effect=['school'])
  z = np.array([[0.1, 0.2, 0.3, -1.0, 0.5]])
  shown = problem.constrain(tf.constant(z))
  np.testing.assert_allclose(shown['double'], [-2.0])
  np.testing.assert_allclose(shown['spread'], np.exp([0.5]))
  np.testing.assert_allclose(shown['effect'], z[:, :3])


def test_a_model_of_numpyro_with_a_discrete_unknown_is_refused():
  numpyro = pytest.importorskip(
    'numpyro', reason='the extra numpyro is not installed'
  )
  dist = importlib.import_module('numpyro.distributions')

  def model():
    numpyro.sample('k', dist.Poisson(2.0))

  with pytest.raises(ValueError, match='k is discrete'):
    tfpa.models.from_numpyro(model)


def test_a_model_of_pymc_keeps_density_names_coords_and_dims():
  pymc = pytest.importorskip('pymc', reason='the extra pymc is not installed')
  with pymc.Model(coords={'school': ['A', 'B', 'C']}) as whole:
    mean = pymc.Normal('mean', 0.0, 5.0)
    spread = pymc.HalfNormal('spread', 5.0)
    effect = pymc.Normal('effect', mean, spread, dims='school')
    pymc.Deterministic('double', 2.0 * mean)
    pymc.Normal('y', effect, _SPREADS, observed=_EFFECTS, dims='school')
  problem = problem_lib.of_model(tfpa.models.from_pymc(whole), 4)
  _check_schools(problem, ['effect', 'mean', 'spread'])
  assert problem.names == ('double', 'effect', 'mean', 'spread')
  assert problem.dims == dict(effect=['school'])
  assert list(problem.coords['school']) == ['A', 'B', 'C']
  shown = problem.constrain(tf.constant([[0.1, 0.2, 0.3, -1.0, 0.5]]))
  np.testing.assert_allclose(shown['double'], [-2.0])
  with pymc.Model() as discrete:
    pymc.Poisson('k', 2.0)
  with pytest.raises(ValueError, match='k: discrete'):
    tfpa.models.from_pymc(discrete)
