"""Every public function shows an example of itself, and each one runs.

XLA is left out: what is compiled is tested elsewhere, and costs seconds.
"""

import functools
import inspect
import os
import re
import subprocess
import sys
import textwrap
import types
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

_MOST_LINES = 8
_RUNS = ('tfpa.sample(', 'tfpa.sample_posterior(')
# It must come before any op of a process.
_APART = 'cache_compilations'


def _functions():
  """Yields (name, function) of all functions, those of catalogues too."""
  for name in tfpa.__all__:
    value = getattr(tfpa, name)
    if inspect.isfunction(value):
      yield name, value
    elif inspect.ismodule(value):
      for inner in value.__all__:
        if inspect.isfunction(getattr(value, inner)):
          yield f'{name}.{inner}', getattr(value, inner)


def _example(function):
  """Returns the code under `Example:`, the last section; '' without one."""
  text = inspect.getdoc(function) or ''
  _, _, code = text.partition('\nExample:\n')
  return textwrap.dedent(code)


EXAMPLES = {name: _example(function) for name, function in _functions()}
RUNS = [n for n, code in EXAMPLES.items() if any(r in code for r in _RUNS)]
PARTS = sorted(set(EXAMPLES) - set(RUNS) - {_APART})


def test_every_public_function_has_a_short_example_that_calls_it():
  for name, code in EXAMPLES.items():
    assert f'tfpa.{name}(' in code, name
    assert 3 <= len(code.splitlines()) <= _MOST_LINES, name


def test_an_example_is_found_to_its_end():
  def function():
    """Returns.

    Example:
      if True:
        print(1)
    """

  assert _example(function) == 'if True:\n  print(1)'
  assert not _example(lambda: None)


def _without_xla(**more):
  """Returns `tfp_adaptive` with runs that are not compiled by XLA."""
  quiet = dict(jit_compile=False, progress=False)
  names = {name: getattr(tfpa, name) for name in tfpa.__all__}
  names.update(
    sample=functools.partial(tfpa.sample, **quiet),
    sample_posterior=functools.partial(tfpa.sample_posterior, **quiet, **more),
  )
  return types.SimpleNamespace(**names)


def _run(code, **more):
  names = dict(np=np, tf=tf, tfp=tfp, tfpa=_without_xla(**more))
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # Of so few steps.
    exec(compile(code, 'example', 'exec'), names)
  return names


@pytest.mark.parametrize('name', PARTS)
def test_examples_of_parts_make_a_kernel_or_draw(name):
  names = _run(EXAMPLES[name])
  if 'kernel' in names and 'target' in names:
    start = names['target'].sample(4, seed=1)
    results = names['kernel'].bootstrap_results(start)
    assert results is not None
  if 'draws' in names:
    density = tfpa.gaussian_priors.log_prob(names['prior'], names['draws'])
    assert np.isfinite(density).all()


@pytest.mark.full
@pytest.mark.parametrize('name', RUNS)
def test_examples_of_samplers_move(name, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = _run(EXAMPLES[name])
  if 'posterior' in names:
    assert names['posterior'].converged
    return
  for part in tf.nest.flatten(names['result'].states):
    assert np.isfinite(part).all() and np.std(part) > 0.1


@pytest.mark.full
def test_the_cache_of_an_example_is_set_in_a_process_that_begins(tmp_path):
  run = subprocess.run(
    [sys.executable, '-c', EXAMPLES[_APART]],
    env=dict(os.environ, XDG_CACHE_HOME=str(tmp_path), TF_XLA_FLAGS=''),
    capture_output=True,
    text=True,
  )
  assert run.returncode == 0, run.stderr[-2000:]
  (folder,) = (tmp_path / 'tfp_adaptive').iterdir()
  assert re.match(r'tensorflow-', folder.name)
