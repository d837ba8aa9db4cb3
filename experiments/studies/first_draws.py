"""Seconds from a model to its draws, each model in a process of its own.

Two calls, the second with another seed. `posteriordb` has the moments by which
Stan's programs are judged; here only time counts.
"""

import subprocess
import sys
import time

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

from experiments import models
from experiments.data import datasets
from experiments.models import posteriordb
from experiments.run.study import Study
from experiments.run.study import Work
from experiments.samplers import on_models

tfb = tfp.bijectors
tfd = tfp.distributions

_STEPS_PER_UNIT = 5  # Runge-Kutta steps for each unit of time.


def _of_rivals(name):
  def build(work):
    del work
    module = models.load(name)
    return module.tfp_model(**module.data())

  return build


def _of_posteriordb(name):
  def build(work):
    folder = datasets.folder(work.data_dir) / 'posteriordb'
    posterior = posteriordb.build(name, folder)
    return posterior.model.experimental_pin(**posterior.pins)

  return build


def _compartment(work):
  """A drug that is eliminated with saturation: dC/dt = -V C / (K + C).

  20 observations with log-normal errors, simulated from the model.
  """
  del work

  def curve(v, k, num_units):
    step = 1.0 / _STEPS_PER_UNIT

    def slope(log_c):  # For log C, which stays finite.
      return -v / (k + tf.exp(log_c))

    def body(log_c, _):
      for _ in range(_STEPS_PER_UNIT):
        a = slope(log_c)
        b = slope(log_c + 0.5 * step * a)
        c = slope(log_c + 0.5 * step * b)
        d = slope(log_c + step * c)
        log_c = log_c + step / 6.0 * (a + 2.0 * b + 2.0 * c + d)
      return log_c

    start = tf.math.log(10.0) + tf.zeros_like(v)
    found = tf.scan(body, tf.range(num_units), start)
    return tf.linalg.matrix_transpose(found) if v.shape.rank else found

  truth = curve(tf.constant(1.2), tf.constant(3.0), 20)
  noise = np.random.RandomState(0).normal(size=20)
  seen = np.float32(truth.numpy() + 0.1 * noise)
  root = tfd.JointDistributionCoroutine.Root

  # Chains are the first axis here: a loop is compiled as it is written.
  @tfd.JointDistributionCoroutine
  def model():
    v = yield root(tfd.LogNormal(0.0, 1.0, name='v'))
    k = yield root(tfd.LogNormal(1.0, 1.0, name='k'))
    sigma = yield root(tfd.HalfNormal(1.0, name='sigma'))
    mean = curve(v, k, 20)
    errors = tfd.Normal(mean, sigma[..., tf.newaxis])
    yield tfd.Independent(errors, 1, name='log_c')

  return model.experimental_pin(log_c=seen)


# Name -> function of the work, which returns a model with its data.
_MODELS = {
  'eight schools, centered': _of_rivals('eight_schools'),
  'regression, 5 parameters': _of_posteriordb('kidiq-kidscore_interaction'),
  'logistic regression, 100 weights': _of_rivals('logistic_regression'),
  'Lotka-Volterra': _of_posteriordb('hudson_lynx_hare-lotka_volterra'),
  'one compartment': _compartment,
}


def _run(build, seed: int, work: Work):
  """Returns the record of two calls."""
  begin = time.monotonic()
  subprocess.run([sys.executable, '-c', 'import tfp_adaptive'], check=True)
  record = {'import_seconds': time.monotonic() - begin}
  for name, offset in (('first', 0), ('second', 100)):
    outcome = on_models.run(on_models.OURS, lambda: build(work), seed + offset)
    record[name] = {
      'converged': outcome.own_converged,
      'found': outcome.found,
      'wall_seconds': outcome.cost['seconds'],
      'cpu_seconds': outcome.cost['cpu_seconds'],
      'gradients': outcome.num_gradients,
    }
  return record


STUDY = Study(
  lambda settings: _MODELS,
  _run,
  seeds=(0, 1, 2),
  process='cell',
  max_seconds=900.0,
)
