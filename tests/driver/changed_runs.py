"""Runs of both front doors in two versions, built from scratch each time.

A case is a function of a folder and of whether something is changed, which
returns a function of the folder of the checkpoint. Most cases change what lies
outside of the graph.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import sys
import types

import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from experiments.samplers import cases as cases_lib
from tfp_adaptive.driver.checkpoint import Checkpoint
from tfp_adaptive.posterior import run_file

tfb = tfp.bijectors
tfd = tfp.distributions

_START = np.random.default_rng(4).normal(size=(4, 2)).astype(np.float32)
Root = tfd.JointDistributionCoroutine.Root
_NAME = 'tfpa_changed_runs_settings'


def _normal(x, scale):
  return -0.5 * tf.reduce_sum((x / scale) ** 2, axis=-1)


def _in_python(value):
  """Returns the density of a scale that Python code reads at every call."""

  def target(x):
    def read(v):
      return _normal(v, value())

    found = tf.py_function(read, [x], x.dtype)
    return tf.ensure_shape(found, x.shape[:-1])

  return target


def _module(scale):
  """Returns a module of the user with a constant."""
  module = types.ModuleType(_NAME)
  module.__file__ = os.path.abspath(__file__)
  module.SCALE = scale
  sys.modules[_NAME] = module
  return module


# Densities of a scale that the graph does not hold, by what holds it.


def _read_file(folder, scale):
  path = str(folder / 'scale.txt')
  (folder / 'scale.txt').write_text(str(scale))
  return lambda x: _normal(x, tf.strings.to_number(tf.io.read_file(path)))


def _lookup_table(folder, scale):
  del folder
  keys = tf.lookup.KeyValueTensorInitializer([0, 1], [scale, 9.0])
  table = tf.lookup.StaticHashTable(keys, -1.0)
  return lambda x: _normal(x, table.lookup(tf.constant(0)))


def _constant_of_a_module(folder, scale):
  del folder
  settings = _module(scale)
  return _in_python(lambda: settings.SCALE)


def _loaded_by_numpy(folder, scale):
  np.save(folder / 'scale.npy', np.float32(scale))
  return _in_python(lambda: float(np.load(folder / 'scale.npy')))


def _large_constant(folder, scale):
  """A custom gradient behind a constant that hides changes of values."""
  (folder / 'scale.txt').write_text(str(scale))

  def read():
    return float((folder / 'scale.txt').read_text())

  @tf.custom_gradient
  def target(x):
    def value(z):
      z = z.numpy()
      return (-0.5 * np.sum((z / read()) ** 2, -1) - 1.4e6).astype(z.dtype)

    def slope(z):
      return -z / np.asarray(read(), z.numpy().dtype) ** 2

    found = tf.ensure_shape(tf.py_function(value, [x], x.dtype), x.shape[:-1])
    at = tf.ensure_shape(tf.py_function(slope, [x], x.dtype), x.shape)
    return found, lambda g: g[..., tf.newaxis] * at

  return target


outside = {
  'a file': _read_file,
  'a lookup table': _lookup_table,
  'a constant of a module': _constant_of_a_module,
  'numpy.load': _loaded_by_numpy,
}

# Runs of `tfpa.sample`.


def _langevin(target, **options):
  return tfpa.gradient_adaptive_langevin(target, 4, **options)


def _sample(kernel, start=_START, **options):
  options = dict(num_results=8, block_size=4, seed=(1, 2)) | options

  def run(folder):
    return tfpa.sample(
      kernel, tf.nest.map_structure(tf.convert_to_tensor, start),
      progress=False, jit_compile=False, checkpoint_dir=folder, **options,
    ).states  # fmt: skip

  return run


def _of_density(make, kernel=_langevin):
  return lambda folder, changed: _sample(
    kernel(make(folder, 1.5 if changed else 1.0))
  )


def _traced_module(folder, changed):
  """A function of what is recorded reads a constant of a module in Python."""
  del folder
  settings = _module(1.5 if changed else 1.0)

  def trace_fn(state, results):
    del results
    found = tf.py_function(
      lambda x: x * settings.SCALE if x[0, 0] > 1e9 else x, [state], state.dtype
    )
    return tf.ensure_shape(found, state.shape)

  return _sample(_langevin(lambda x: _normal(x, 1.0)), trace_fn=trace_fn)


def _scheduled_step(folder, changed):
  """The step size comes from a constant of a module, when it is traced."""
  del folder
  settings = _module(0.4 if changed else 0.5)
  return _sample(
    tfp.mcmc.RandomWalkMetropolis(
      lambda x: _normal(x, 1.0),
      new_state_fn=lambda parts, seed: [
        part + settings.SCALE * tf.random.stateless_normal(part.shape, seed)
        for part in parts
      ],
    )
  )


SAMPLES = {
  f'{name}, tfpa.sample': _of_density(f) for name, f in outside.items()
}
SAMPLES.update({
  'a file, no gradient, tfpa.sample': _of_density(
    _read_file, lambda target: tfpa.adaptive_metropolis(target, 4)
  ),
  'a large constant, tfpa.sample': _of_density(_large_constant),
  'a traced module, tfpa.sample': _traced_module,
  'a module in a step, tfpa.sample': _scheduled_step,
})  # fmt: skip


def _estimated(folder, changed):
  """A target that is random by design, from a seed."""
  del folder, changed

  def estimate(x, seed):
    noise = tf.random.stateless_normal(x.shape[:-1], seed)
    return _normal(x, 1.0) + 0.3 * noise - 0.045

  return _sample(
    tfpa.adaptive_metropolis(estimate, 4, target_is_stochastic=True)
  )


# Every builder.


def _of_builder(builder):
  """Returns the case of a builder, whose density is changed."""

  def case(folder, changed):
    del folder
    factor, function = 1.01 if changed else 1.0, builder.problem.function
    built = builder.build(lambda *state: factor * function(*state), 4)
    return _sample(built, builder.problem.start())

  return case


def _history(folder, changed):
  """Draws that are given to a surrogate."""
  del folder
  draws = np.float32(1.5 if changed else 1.0) * np.tile(_START, (10, 1))
  return _sample(
    tfpa.kernel_hamiltonian(lambda x: _normal(x, 1.0), 4, history=draws)
  )


SAMPLES['a history, tfpa.sample'] = _history


# The first case of a builder counts, and those of the baselines do not.
BUILDERS = {
  f'another density, {case.builder.__name__}': _of_builder(case)
  for case in reversed(cases_lib.CASES)
  if 'baselines' not in case.builder.__module__
}
# Runs of `sample_posterior`.


def _posterior(model, num_chains=4, seed=3, **options):
  options = dict(num_draws=100, min_ess=20, max_gradients=2000) | options

  def run(folder):
    return tfpa.sample_posterior(
      model, num_chains=num_chains, seed=seed, jit_compile=False,
      progress=False, checkpoint_dir=folder, **options,
    ).unconstrained  # fmt: skip

  return run


def _posterior_of(make):
  return lambda folder, changed: _posterior(
    make(folder, 1.5 if changed else 1.0), init=tf.TensorSpec([2])
  )


def _of_joint(**changes):
  """Returns the case of a joint distribution and an option that changes."""

  def case(folder, changed):
    del folder
    options = dict(y=np.float32([0.5, 1.0, -0.5]))

    @tfd.JointDistributionCoroutineAutoBatched
    def model():
      mean = yield tfd.Normal(0.0, 2.0, name='mean')
      yield tfd.Sample(tfd.Normal(mean, 1.0), 3, name='y')

    return _posterior(model, **options | (changes if changed else {}))

  return case


def _python_in_a_model(folder, changed):
  """A joint distribution with Python code in it."""
  del folder, changed

  @tfd.JointDistributionCoroutine
  def model():
    mean = yield Root(tfd.Sample(tfd.Normal(0.0, 1.0), 2, name='mean'))
    at = tf.py_function(lambda v: 2.0 * v, [mean], mean.dtype)
    at = tf.ensure_shape(at, mean.shape)
    yield tfd.Independent(tfd.Normal(at, 1.0), 1, name='y')

  return _posterior(model, y=np.float32([1.0, 2.0]))


POSTERIORS = {
  f'{name}, sample_posterior': _posterior_of(f) for name, f in outside.items()
}
POSTERIORS.update({
  'a large constant, sample_posterior': _posterior_of(_large_constant),
  'a datum, sample_posterior': _of_joint(y=np.float32([0.5, 1.0, -0.49])),
  'the seed, sample_posterior': _of_joint(seed=4),
  'draws, sample_posterior': _of_joint(num_draws=101),
  'chains, sample_posterior': _of_joint(num_chains=5),
  'effective draws, sample_posterior': _of_joint(min_ess=21),
  'a bijector, sample_posterior': lambda folder, changed: _posterior(
    lambda x: _normal(x, 1.0),
    init=tf.TensorSpec([2]),
    bijectors=tfb.Softplus(hinge_softness=1.001 if changed else 1.0),
  ),
})  # fmt: skip


# Runs that are resumed unchanged in a fresh process: ten for each front door,
# and one for each builder.
UNCHANGED = dict([*SAMPLES.items()][:9] + [*POSTERIORS.items()][:9])
UNCHANGED.update(BUILDERS)
UNCHANGED['an estimate, tfpa.sample'] = _estimated
UNCHANGED['a model with Python code, sample_posterior'] = _python_in_a_model


class Cut(Exception):
  """The end of a run that was killed."""


@contextlib.contextmanager
def cut(owner, name, num_calls):
  """Ends a run in place of a later call of a method that writes."""
  method, calls = getattr(owner, name), []

  def cutting(self, *args):
    if len(calls) == num_calls:
      raise Cut
    calls.append(None)
    return method(self, *args)

  setattr(owner, name, cutting)
  try:
    yield
  except Cut:
    pass
  finally:
    setattr(owner, name, method)


def begin(case, folder, number, changed=False):
  """Runs a case up to where it is cut: in an adaptation, or after it."""
  run = case(folder, changed)
  is_late = number % 2 and 'sample_posterior' in run.__qualname__
  where = (run_file.RunFile, 'write') if is_late else (Checkpoint, 'save')
  with cut(*where, 1):
    run(folder / 'run')


def digest(draws):
  """Returns a checksum of draws."""
  found = hashlib.sha256()
  for part in tf.nest.flatten(draws):
    found.update(np.ascontiguousarray(part).tobytes())
  return found.hexdigest()[:16]


def _all(root, is_first):
  """Prints, as JSON, the checksum of every unchanged case, or its refusal.

  Args:
    root: `pathlib.Path` of the folders of all cases.
    is_first: Whether the runs begin and are cut. Otherwise they are resumed, in
      the opposite order.
  """
  cases = list(enumerate(UNCHANGED.items()))
  found = {}
  for number, (name, case) in cases if is_first else cases[::-1]:
    folder = root / str(number)
    folder.mkdir(exist_ok=True)
    try:
      if is_first:
        found[name] = digest(case(folder, False)(None))
        begin(case, folder, number)
      else:
        found[name] = digest(case(folder, False)(folder / 'run'))
    except ValueError as error:
      found[name] = f'refused: {error}'
  print(json.dumps(found))


if __name__ == '__main__':
  _all(pathlib.Path(sys.argv[1]), sys.argv[2] == 'first')
