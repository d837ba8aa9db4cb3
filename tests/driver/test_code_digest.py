"""Digests of Python code: functions with the data that they read."""

import collections
import functools
import math
import sys
import types

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from scipy import interpolate

from tests.driver import child
from tfp_adaptive.driver import code_digest

_SCALE = 2.0


def _scaled(x):
  return _SCALE * x


def _adding(value):
  return lambda x: x + value


class _Model:
  def __init__(self, data):
    self.data = data

  def log_prob(self, x):
    return -np.sum((x - self.data) ** 2)


_FIRST, _SECOND = 1.0, 1.0


def _first(x):
  return _FIRST * x


def _second(x):
  return _SECOND * x


def _multiply(x, factor):
  return x * factor


def _simulator_that_is_edited(sign):
  if sign > 0:

    class Simulator:
      def __call__(self, x):
        return self.simulate(x)

      def simulate(self, x):
        return x + 1.0
  else:

    class Simulator:
      def __call__(self, x):
        return self.simulate(x)

      def simulate(self, x):
        return x - 1.0

  return Simulator()


class _Private:
  __slots__ = {'__data': 'what is drawn from'}

  def __init__(self, data):
    self.__data = data


def _with_powers(powers):
  return type('Powered', (), dict(powers=powers, __module__=__name__))()


def _spline(last):
  return _adding(interpolate.CubicSpline([0.0, 1.0, 2.0], [0, 1, last]))


# Name -> a function of a value to what is digested, and two values.
CHANGES = {
  'data in private slots': (_Private, 1.0, 2.0),
  'a tuple of a class': (_with_powers, (1, 2), (3, 2)),
  'another method of an instance': (_simulator_that_is_edited, 1, -1),
  'a method that is called': (
    lambda sign: functools.partial(map, _simulator_that_is_edited(sign)), 1, -1,
  ),
  'a container': (lambda x: _adding(collections.deque([x])), 1.0, 2.0),
  'a spline through other points': (_spline, 0, 1),
  'a function of C': (_adding, math.sin, math.cos),
  'code': (
    lambda sign: (lambda x: x + 2) if sign > 0 else (lambda x: x - 2), 1, -1,
  ),
  'a constant': (
    lambda first: (lambda x: x + 1) if first else (lambda x: x + 2), 1, 0,
  ),
  'a number held by a closure': (_adding, 1.0, 1.5),
  'an array held by a closure': (
    lambda shift: _adding(np.arange(3.0) + shift), 0.0, 1e-12,
  ),
  'a Tensor': (lambda x: _adding(tf.constant(x)), 1.0, 2.0),
  'the data of a method': (
    lambda x: _Model(np.full(2, x)).log_prob, 0.0, 1.0,
  ),
  'a default': (lambda s: lambda x, shift=s: x + shift, 1.0, 2.0),
  'an argument of a partial': (
    lambda x: functools.partial(_multiply, factor=x), 1.0, 2.0,
  ),
  'what a tf.function wraps': (lambda x: tf.function(_adding(x)), 1.0, 2.0),
}  # fmt: skip


@pytest.mark.parametrize('name', CHANGES)
def test_another_function_has_another_digest(name):
  make, one, two = CHANGES[name]
  assert code_digest.digest(make(one)) == code_digest.digest(make(one))
  assert code_digest.digest(make(one)) != code_digest.digest(make(two))


def test_the_end_of_a_container_counts():
  inside = functools.partial(max, [1.0, 2.0])
  behind = functools.partial(max, [1.0], 2.0)
  assert code_digest.digest(inside) != code_digest.digest(behind)


def test_a_global_of_a_later_function_counts(monkeypatch):
  both = [_first, _second, *[_adding(i) for i in range(5)], _scaled]
  before = code_digest.digest(both)
  for name in ('_FIRST', '_SECOND', '_SCALE'):
    with monkeypatch.context() as patch:
      patch.setattr(f'{__name__}.{name}', 3.0)
      assert code_digest.digest(both) != before, name
  assert code_digest.digest(both) == before


def _model(scale):
  tfd = tfp.distributions

  @tfd.JointDistributionCoroutineAutoBatched
  def model():
    mean = yield tfd.Normal(0.0, scale, name='mean')
    yield tfd.Sample(tfd.Normal(mean, 1.0), 3, name='y')

  return model


@pytest.mark.parametrize(
  'make',
  [
    _model,
    lambda scale: tfp.distributions.Normal(0.0, scale),
    lambda scale: tfp.distributions.MultivariateNormalDiag(
      tf.zeros(2), scale * tf.ones(2)
    ),
    lambda scale: tfp.bijectors.Chain([tfp.bijectors.Scale(scale)]),
  ],
)
def test_what_tfp_remembers_does_not_count(make):
  one, used, other = make(1.0), make(1.0), make(2.0)
  if hasattr(used, 'sample'):
    used.log_prob(used.sample(seed=1))
  else:
    used.forward_log_det_jacobian(tf.constant(1.0), 0)
  assert code_digest.digest(one) == code_digest.digest(used)
  assert code_digest.digest(one) != code_digest.digest(other)


class _Counting:
  def __init__(self, scale):
    self.scale, self.num_calls = scale, 0

  def __call__(self, x):
    self.num_calls += 1
    return self.scale * x


def _counting_in_a_closure(scale):
  num_calls = 0

  def call(x):
    nonlocal num_calls
    num_calls += 1
    return scale * x

  return call


@pytest.mark.parametrize('make', [_Counting, _counting_in_a_closure])
def test_a_count_of_calls_does_not_count(make):
  function = make(1.0)
  before = code_digest.digest(function)
  assert [function(1.0), function(2.0)] == [1.0, 2.0]
  assert code_digest.digest(function) == before
  assert code_digest.digest(make(2.0)) != before


def _with_module(**attributes):
  module = types.ModuleType('tfpa_test_settings')
  module.__file__ = __file__
  vars(module).update(attributes)
  sys.modules[module.__name__] = module
  return lambda x: module.SCALE * module.shifted(x)


def test_what_code_reads_of_a_module_of_the_user_counts():
  shifted = _adding(1.0)
  before = code_digest.digest(_with_module(SCALE=1.0, shifted=shifted, OTHER=1))
  for changed in (dict(SCALE=2.0), dict(shifted=_adding(2.0))):
    attributes = dict(SCALE=1.0, shifted=shifted) | changed
    assert code_digest.digest(_with_module(**attributes)) != before
  # Power: what it does not read is not read here.
  again = _with_module(SCALE=1.0, shifted=shifted, OTHER=2)
  assert code_digest.digest(again) == before
  del sys.modules['tfpa_test_settings']


def test_cycles_end():
  nested = {}
  nested['self'] = nested
  assert code_digest.digest(nested) == code_digest.digest(nested)


_STABLE = """
import dataclasses, functools, importlib.util, itertools, logging, pathlib
import random, sys
import numpy as np
from scipy import stats

spec = importlib.util.spec_from_file_location('code_digest', sys.argv[1])
code_digest = importlib.util.module_from_spec(spec)
spec.loader.exec_module(code_digest)

_PATH = pathlib.Path('data.csv')
hash(_PATH), str(_PATH)[:int(sys.argv[2])]
_RNG = np.random.default_rng(0)
_RNG.normal(size=int(sys.argv[2]))
_LOG = logging.getLogger('a')
for name in range(int(sys.argv[2])):
  logging.getLogger(f'b{name}').isEnabledFor(10)


@dataclasses.dataclass
class Model:
  link: object = len
  other: object = lambda x: x

  def log_prob(self, x):
    return stats.norm(0.0, 1.0).logpdf(x) + self.link(_RNG.normal(size=3))

  def fit(self, x):
    _LOG.info('%s', _PATH)
    return next(itertools.count())


print(code_digest.digest(Model().log_prob), code_digest.digest(stats.norm))
"""


def test_the_digest_of_a_program_is_that_of_another_process():
  digests = {
    child.run('-c', _STABLE, code_digest.__file__, seed, PYTHONHASHSEED=seed)
    for seed in '12'
  }
  assert len(digests) == 1 and len(digests.pop().split()) == 2


def test_a_value_that_is_too_large_does_not_hide_its_neighbours():
  large = list(range(30_000))
  with_f, with_g = (
    code_digest.digest([{'a': large}, lambda x, c=c: c * x]) for c in (1, 2)
  )
  assert with_f != with_g
  assert with_f == code_digest.digest(
    [{'a': list(range(30_000))}, lambda x, c=1: c * x]
  )
