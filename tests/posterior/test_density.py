"""The density as one flat program: the same values, never compiled again."""

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.posterior import compilation
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior import flat_graph
from tfp_adaptive.posterior.density import Density
from tfp_adaptive.posterior.model import problem as problem_lib

tfd = tfp.distributions

_NUM_CHAINS, _SIZE = 4, 3


def _of(log_prob, dtype=tf.float32, computed_in=None):
  problem = problem_lib.of_density(
    log_prob, tf.TensorSpec([_SIZE], dtype), None, _NUM_CHAINS
  )
  return Density(problem, _NUM_CHAINS, computed_in)


_normal = targets.standard_normal


def _rows(count=_NUM_CHAINS):
  return np.random.default_rng(0).normal(size=(count, _SIZE))


def test_evaluations_are_in_batches_of_chains_and_counted():
  density, rows = _of(_normal, tf.float64), _rows(11)
  values, gradients = density.evaluate(rows)
  np.testing.assert_allclose(values, -0.5 * np.sum(rows**2, axis=1))
  np.testing.assert_allclose(gradients, -rows)
  assert density.num_calls == 3
  # Fewer than there are chains.
  np.testing.assert_allclose(density.evaluate(rows[:2])[1], -rows[:2])


@pytest.mark.parametrize('with_xla', [False, True])
@pytest.mark.parametrize('count', [1, 11, 16 * _NUM_CHAINS, 150])
def test_compiled_steps_evaluate_points_as_the_density_does(
  with_xla, count, monkeypatch
):
  steps, calls = Density.steps, []
  monkeypatch.setattr(
    Density, 'steps', lambda self: calls.append(1) or steps(self)
  )
  density, rows = _of(lambda x: _normal(x - 1e3), tf.float64), _rows(count)
  density.use_xla(with_xla)
  values, gradients = density.evaluate(rows)
  expected = -0.5 * np.sum((rows - 1e3) ** 2, axis=1)
  np.testing.assert_allclose(values, expected, rtol=1e-14)
  np.testing.assert_allclose(gradients, 1e3 - rows, rtol=1e-14)
  assert bool(calls) == with_xla


def test_what_was_compiled_is_not_compiled_again_for_the_same_density():
  def density(centre, num_chains=_NUM_CHAINS):
    problem = problem_lib.of_density(
      lambda x: _normal(x - tf.constant(centre)),
      tf.TensorSpec([_SIZE]),
      None,
      num_chains,
    )
    found = Density(problem, num_chains)
    found.use_xla(True)
    return found

  first = density(0.5).steps()
  assert density(0.5).steps() is first
  other = density(0.25)
  assert other.steps() is not first
  rows = _rows()
  expected = -0.5 * np.sum((rows - 0.25) ** 2, axis=1)
  np.testing.assert_allclose(other.evaluate(rows)[0], expected, rtol=1e-14)
  assert density(0.5, _NUM_CHAINS + 1).steps() is not first


@tfd.JointDistributionCoroutineAutoBatched
def _hierarchy():
  mean = yield tfd.Normal(0.0, 10.0, name='mean')
  spread = yield tfd.LogNormal(0.0, 1.0, name='spread')
  effect = yield tfd.Sample(tfd.Normal(mean, spread), 3, name='effect')
  yield tfd.Independent(tfd.Poisson(log_rate=effect), 1, name='y')


_COUNTS = np.float32([3.0, 0.0, 7.0])


def _in_numpy(z):
  """The log density of `_hierarchy` over z, up to a constant."""
  mean, log_spread, effect = z[:, 0], z[:, 1], z[:, 2:]
  residual = (effect - mean[:, None]) / np.exp(log_spread)[:, None]
  return (
    -0.5 * (mean / 10.0) ** 2
    - 0.5 * log_spread**2
    - 3.0 * log_spread
    - 0.5 * np.sum(residual**2, axis=1)
    + np.sum(_COUNTS * effect - np.exp(effect), axis=1)
  )


@pytest.fixture(scope='module')
def hierarchy():
  problem = problem_lib.of_joint(_hierarchy, dict(y=_COUNTS), None, _NUM_CHAINS)
  return Density(problem, _NUM_CHAINS)


def test_a_model_in_float32_is_computed_to_the_digits_of_float64(hierarchy):
  assert hierarchy.dtype == tf.float64 and not hierarchy.note
  z = np.random.default_rng(1).normal(size=(_NUM_CHAINS, 5))
  values, gradients = hierarchy.evaluate(z)
  expected = _in_numpy(z)
  np.testing.assert_allclose(np.diff(values), np.diff(expected), atol=1e-5)
  step = 1e-5
  for i in range(5):
    shift = step * np.eye(5)[i]
    slope = (_in_numpy(z + shift) - _in_numpy(z - shift)) / (2.0 * step)
    np.testing.assert_allclose(gradients[:, i], slope, rtol=1e-4, atol=1e-4)
  # The differences have far more digits than float32 holds.
  near = z + 1e-9
  change = hierarchy.evaluate(near)[0] - values
  np.testing.assert_allclose(change, 1e-9 * gradients.sum(axis=1), rtol=1e-3)


def test_it_holds_no_calls_so_that_no_value_is_compiled_in():
  inner = tf.function(_normal, autograph=False)
  program = _of(inner).program(_NUM_CHAINS)
  assert not _calls(program)
  compiled = tf.function(
    lambda rows: program(rows), jit_compile=True, autograph=False
  )
  rows = tf.constant(_rows())
  assert 'parameter(0)' in compiled.experimental_get_compiler_ir(rows)('hlo')
  # As the user's own graph has them.
  live = tf.function(lambda x: tfp.math.value_and_gradient(inner, x))
  assert _calls(live.get_concrete_function(rows))


def _calls(concrete):
  kinds = [op.type for op in concrete.graph.get_operations()]
  return [kind for kind in kinds if 'Call' in kind]


def test_kernels_may_call_it_with_more_axes_and_differentiate_it(hierarchy):
  z = np.random.default_rng(1).normal(size=(2, _NUM_CHAINS, 5))
  value, gradient = tfp.math.value_and_gradient(hierarchy, tf.constant(z))
  for i in range(2):
    np.testing.assert_allclose(value[i], hierarchy.evaluate(z[i])[0])
    np.testing.assert_allclose(gradient[i], hierarchy.evaluate(z[i])[1])


def _with_a_loop(x):
  """Sums 0.5 x^2 coordinate by coordinate, in a loop with a gradient."""
  total = tf.scan(
    lambda sum_so_far, column: sum_so_far - 0.5 * column**2,
    tf.transpose(x),
    initializer=tf.zeros_like(x[:, 0]),
  )
  return total[-1]


def _with_a_branch(x):
  return tf.cond(
    tf.reduce_sum(x) > 1e3, lambda: 0.0 * x[:, 0], lambda: _normal(x)
  )


_SCALE = tf.Variable(1.0)
_DATA = tf.constant(np.zeros([2000, _SIZE], np.float32))


@pytest.mark.parametrize(
  'log_prob',
  [
    _with_a_loop,
    _with_a_branch,
    lambda x: _normal(x) * _SCALE,
    lambda x: _normal(x + tf.reduce_sum(_DATA, axis=0)),
    lambda x: (
      -0.5 * tf.reduce_sum(tf.cast(tf.cast(x, tf.float64), tf.float32) ** 2, -1)
    ),
  ],
  ids=['loop', 'branch', 'variable', 'captured', 'casts'],
)
def test_loops_branches_variables_and_data_become_float64(log_prob):
  density, rows = _of(log_prob), _rows()
  assert density.dtype == tf.float64, density.note
  values, gradients = density.evaluate(rows)
  np.testing.assert_allclose(values, -0.5 * np.sum(rows**2, axis=1), rtol=1e-14)
  np.testing.assert_allclose(gradients, -rows, rtol=1e-14)
  density.lower()


@tf.custom_gradient
def _in_python(x):
  value = tf.numpy_function(
    lambda rows: -0.5 * np.sum(rows**2, axis=-1), [x], x.dtype
  )
  value.set_shape(x.shape[:1])
  return value, lambda upstream: -x * upstream[:, tf.newaxis]


def _by_bits(x):
  bits = tf.bitcast(tf.bitcast(x, tf.int32), tf.float32)
  return _normal(x) + 0.0 * tf.reduce_sum(bits, axis=-1)


def _by_precision(x):
  is_lost = tf.cast(x + 1e-9 == x, x.dtype)
  return _normal(x) - 1e3 * tf.reduce_sum(is_lost, axis=-1)


def _by_table(x):
  keys, values = tf.constant([0, 1]), tf.constant([1.0, 2.0])
  table = tf.lookup.StaticHashTable(
    tf.lookup.KeyValueTensorInitializer(keys, values), 0.0
  )
  _TABLES.append(table)
  return _normal(x) * table.lookup(tf.constant(0))


_TABLES = []  # A table lives as long as a user holds it.


@pytest.mark.parametrize('num_far, is_alike', [(1, True), (3, False)])
def test_most_rows_tell_whether_float64_has_the_same_values(num_far, is_alike):
  values, gradients = np.zeros(_NUM_CHAINS), _rows()
  wrong = values + 0.1 * (np.arange(_NUM_CHAINS) < num_far)
  found = density_lib._are_alike((wrong, gradients), (values, gradients))
  assert found == is_alike
  # Rows without a value in float32 say nothing.
  unknown = np.where(np.arange(_NUM_CHAINS) == 3, values, np.nan)
  assert density_lib._are_alike((unknown, gradients), (values, gradients))


@pytest.mark.parametrize(
  'log_prob, note',
  [
    (_in_python, 'float64 would change PyFunc'),
    (_by_bits, 'float64 would change Bitcast'),
    (_by_table, 'its graph cannot be frozen'),
    (_by_precision, 'in float64 the density has other values'),
  ],
)
def test_what_float64_would_change_stays_as_it_is(log_prob, note):
  density = _of(log_prob)
  assert density.dtype == tf.float32 and density.note == note


def test_the_dtype_that_a_user_asks_for_counts():
  assert _of(_normal, computed_in=tf.float32).dtype == tf.float32
  assert _of(_normal, tf.float64, tf.float64).dtype == tf.float64
  with pytest.raises(ValueError, match='unknowns of the model are float64'):
    _of(_normal, tf.float64, tf.float32)


def test_numbers_that_the_model_rounded_keep_their_values():
  concrete = tf.function(lambda x: x * tf.constant(0.1)).get_concrete_function(
    tf.TensorSpec([1])
  )
  wide = flat_graph.in_float64(flat_graph.flat(concrete))
  (value,) = wide(tf.constant([1.0], tf.float64))
  assert float(value) == float(np.float32(0.1)) != 0.1


def test_a_table_that_cannot_be_frozen_is_looked_up_without_xla():
  keys = tf.lookup.KeyValueTensorInitializer([0], [2.0])
  table = tf.lookup.StaticHashTable(keys, -1.0)
  density = _of(lambda x: _normal(x / table.lookup(tf.constant(0))))
  values, gradients = density.evaluate(np.ones([_NUM_CHAINS, _SIZE]))
  np.testing.assert_allclose(values, np.full(_NUM_CHAINS, -0.125 * _SIZE))
  np.testing.assert_allclose(gradients, np.full(gradients.shape, -0.25))


# XLA is left out where a density's operations are slow in it, or not there.


def _process(size):
  points = np.linspace(0.0, 1.0, size, dtype=np.float32)[:, np.newaxis]
  kernel = tfp.math.psd_kernels.ExponentiatedQuadratic(length_scale=0.1)
  covariance = kernel.matrix(points, points) + 1e-2 * np.eye(size)

  def log_prob(x):
    scale = tf.exp(x[..., :1])[..., tf.newaxis]
    factor = tf.linalg.cholesky(scale * covariance)
    values = tf.linalg.triangular_solve(factor, tf.ones_like(covariance[:, :1]))
    log_det = tf.reduce_sum(tf.math.log(tf.linalg.diag_part(factor)), axis=-1)
    square = tf.reduce_sum(values**2, axis=[-2, -1])
    return -0.5 * square - log_det - 0.5 * tf.reduce_sum(x**2, axis=-1)

  return log_prob


def _in_a_loop(x):
  """A factor of 2 x 2 in the body of a loop, as filters have it."""

  def body(step, total):
    matrix = tf.eye(2, batch_shape=tf.shape(x)[:1]) * tf.exp(x[..., :1, None])
    factor = tf.linalg.cholesky(matrix)
    return step + 1, total - tf.reduce_sum(factor, axis=[-2, -1])

  total = -0.5 * tf.reduce_sum(x**2, axis=-1)
  return tf.while_loop(
    lambda step, total: step < 3, body, (0, total), maximum_iterations=3
  )[1]


def _with_states_summed_out(x):
  """A hidden Markov model, whose density loops over steps without a bound."""
  law = tfp.distributions.HiddenMarkovModel(
    tfp.distributions.Categorical(logits=[0.0, 0.0]),
    tfp.distributions.Categorical(logits=[[1.0, 0.0], [0.0, 1.0]]),
    tfp.distributions.Normal(tf.stack([x[..., 0], x[..., 1]], -1), 1.0),
    num_steps=5,
  )
  return law.log_prob(tf.zeros([5])) - 0.5 * tf.reduce_sum(x**2, axis=-1)


@tfp.distributions.JointDistributionCoroutineAutoBatched
def _elimination():
  """An ordinary differential equation, written for one chain."""
  rate = yield tfp.distributions.LogNormal(0.0, 1.0, name='rate')

  def turn(amount, _):
    return amount - 0.1 * rate * amount / (1.0 + amount)

  curve = tf.scan(turn, tf.zeros([5]), initializer=rate)
  yield tfp.distributions.Independent(
    tfp.distributions.Normal(curve, 0.1), 1, name='y'
  )


def _obstacle(log_prob):
  density = _of(log_prob)
  with_xla, found = compilation.choose(None, density)
  assert with_xla == (not found)
  # What the user asks for counts.
  assert compilation.choose(True, density) == (True, '')
  return found


def test_a_large_factor_is_an_obstacle_and_a_small_one_is_none(monkeypatch):
  monkeypatch.setattr(
    tf.config, 'list_logical_devices', lambda kind: [kind] * (kind == 'CPU')
  )
  assert 'Cholesky of 60 x 60' in _obstacle(_process(60))
  assert _obstacle(_process(6)) == ''
  assert _obstacle(_in_a_loop) == ''
  assert _obstacle(_with_states_summed_out) == ''
  assert _obstacle(lambda x: -0.5 * tf.reduce_sum(x**2, axis=-1)) == ''


def test_a_loop_in_a_model_for_one_chain_is_compiled_in_float64():
  problem = problem_lib.of_joint(_elimination, dict(y=tf.ones([5])))
  density = Density(problem, num_chains=4)
  assert compilation.choose(None, density) == (True, '')
  assert density.dtype == tf.float64 or tf.config.list_logical_devices('GPU')


def _log_determinant(x):
  matrix = tf.linalg.diag(tf.exp(x))
  return tf.linalg.slogdet(matrix)[1] - tf.reduce_sum(x**2, axis=-1)


def _log_determinant_in_a_loop(x):
  return tf.map_fn(lambda row: _log_determinant(row[tf.newaxis])[0], x)


def _root_of_a_matrix(x):
  root = tf.linalg.sqrtm(tf.linalg.diag(tf.exp(x)))
  return -tf.reduce_sum(root, axis=[-2, -1])


def _until_it_is_small(x):
  """A loop whose gradient keeps as many values as it has turns."""

  def halved(value):
    return 0.5 * value

  value = tf.while_loop(lambda v: tf.reduce_max(tf.abs(v)) > 1e-3, halved, [x])
  return -tf.reduce_sum(x**2 + value[0] ** 2, axis=-1)


def _value_and_gradient(log_prob):
  return lambda rows: tfp.math.value_and_gradient(log_prob, rows)


@pytest.mark.parametrize(
  'log_prob, reason',
  [
    (
      _until_it_is_small,
      'it says XLA compilation requires a fixed tensor list',
    ),
    (_log_determinant, 'LogMatrixDeterminant'),
    (_log_determinant_in_a_loop, 'LogMatrixDeterminant'),
    (_root_of_a_matrix, 'MatrixSquareRoot'),
    (_in_python, 'PyFunc'),
  ],
)
def test_what_xla_does_not_know_is_an_obstacle(log_prob, reason):
  assert reason in _obstacle(log_prob)
  # As XLA says itself.
  with pytest.raises((tf.errors.OpError, ValueError)):
    tf.function(_value_and_gradient(log_prob), jit_compile=True)(
      tf.zeros([4, 2])
    )


@pytest.mark.full
def test_a_posterior_with_large_factors_is_sampled_without_xla():
  posterior = tfpa.sample_posterior(
    _process(60), init=tf.TensorSpec([2]), progress=False
  )
  assert 'without XLA' in posterior.report[0].found
  assert posterior.converged
  # The second coordinate is its prior.
  second = posterior.unconstrained[..., 1]
  assert abs(second.mean()) < 0.15 and abs(second.std() - 1.0) < 0.1
