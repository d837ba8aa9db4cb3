"""Products with the Hessian: against its closed form, compiled or not."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.contracts import trajectories
from tfp_adaptive.linear import hessian_product

_EVENT_SIZE = 4
_TARGET = trajectories.Quartic(_EVENT_SIZE)

# The same target from pieces of its state, cut as users cut them.
_PIECES = {
  'whole': lambda x: x,
  'index': lambda x: tf.concat([x[..., :1], x[..., 1:]], axis=-1),
  'slice': lambda x: tf.concat(
    [
      tf.slice(x, [0, 0], [tf.shape(x)[0], 3]),
      tf.slice(x, [0, 3], [tf.shape(x)[0], 1]),
    ],
    axis=-1,
  ),
  'split': lambda x: tf.concat(tf.split(x, [1, 3], axis=-1), axis=-1),
  'gather': lambda x: tf.gather(
    tf.gather(x, [2, 0, 3, 1], axis=-1), [1, 3, 0, 2], axis=-1
  ),
  'stack': lambda x: tf.stack(tf.unstack(x, axis=-1), axis=-1),
}


def _points(num_chains=5, seed=0):
  return np.random.default_rng(seed).normal(size=(2, num_chains, _EVENT_SIZE))


def _state(name, x):
  """Returns the target and the state: a list of parts for one of them."""
  if name != 'list':
    return lambda x: _TARGET.log_prob(_PIECES[name](x)), x

  def log_prob(scalar, matrix):
    flat = tf.reshape(matrix[:, 0], [-1, 3])
    return _TARGET.log_prob(tf.concat([scalar[:, tf.newaxis], flat], -1))

  return log_prob, [x[:, 0], tf.reshape(x[:, 1:], [-1, 1, 3])]


def _product(name, method, x, rows, dtype=tf.float64):
  gradient = tf.constant(_TARGET.gradient(x), dtype)
  x, rows = tf.constant(x, dtype), tf.constant(rows, dtype)
  target, state = _state(name, x)
  product = hessian_product.hessian_product(
    target, state, x, gradient, 1, method
  )
  sizes = tf.norm(rows, axis=-1, keepdims=True)
  return product(rows, sizes)


def _expected(x, rows):
  return np.einsum('nij,nj->ni', _TARGET.hessian(x), rows)


each_state = pytest.mark.parametrize('name', [*_PIECES, 'list'])


@functools.cache
def _compiled(method):
  """Returns the products of all targets from one compiled program."""
  x, rows = _points()

  @tf.function(jit_compile=True, autograph=False)
  def products():
    return {
      name: _product(name, method, x, rows) for name in (*_PIECES, 'list')
    }

  return products()


@each_state
def test_autodiff_is_the_dense_hessian(name):
  x, rows = _points()
  got = _product(name, 'autodiff', x, rows)
  np.testing.assert_allclose(got, _expected(x, rows), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
  'dtype, tolerance', [(tf.float64, 1e-5), (tf.float32, 1e-2)], ids=str
)
@each_state
def test_finite_differences_have_half_of_the_digits(name, dtype, tolerance):
  x, rows = _points()
  got = _product(name, 'finite_difference', x, rows, dtype)
  assert got.dtype == dtype
  expected = _expected(x, rows)
  error = np.linalg.norm(got - expected, axis=-1)
  assert np.all(error < tolerance * np.linalg.norm(expected, axis=-1))


def test_finite_differences_do_not_depend_on_the_units_of_the_rows():
  # The width follows the size: a row of length 1e-6 or 1e6 is as good.
  x, rows = _points()
  for scale in (1e-6, 1e6):
    got = _product('whole', 'finite_difference', x, scale * rows)
    np.testing.assert_allclose(
      got / scale, _expected(x, rows), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize('method', hessian_product.METHODS)
@each_state
def test_compiled_products_are_those_of_eager_execution(name, method):
  # TF alone cannot compile the autodiff product of `tf.slice`.
  x, rows = _points()
  tolerance = 1e-10 if method == 'autodiff' else 1e-5
  np.testing.assert_allclose(
    _compiled(method)[name], _expected(x, rows), rtol=tolerance, atol=tolerance
  )


@pytest.mark.parametrize('method', hessian_product.METHODS)
def test_chains_without_a_finite_product_get_zeros_and_others_theirs(method):
  x, rows = _points()
  x[2] = np.nan
  got = _product('whole', method, x, rows).numpy()
  np.testing.assert_array_equal(got[2], 0.0)
  others = [0, 1, 3, 4]
  np.testing.assert_allclose(
    got[others], _expected(x[others], rows[others]), rtol=1e-5, atol=1e-5
  )
