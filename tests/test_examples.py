"""The examples of docstrings and pages run, and find what is known exactly.

Sybil takes the blocks from a page and runs them in one namespace, in turn. A
page without a test of its own is run as it is.
"""

import functools
import inspect
import os
import pathlib
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
from sybil.document import Document
from sybil.parsers.markdown import PythonCodeBlockParser

import tfp_adaptive as tfpa
from tfp_adaptive.core import block_fits

_ROOT = pathlib.Path(tfpa.__file__).resolve().parents[1]
# The blocks of these pages stand alone, and each is an item.
_SEPARATE = ('README.md', 'docs/choose.md')
# Each has a test below, or, for `extend`, in test_extend.py.
_WITH_OWN_TEST = (
  'docs/coming_from.md',
  'docs/compile_time.md',
  'docs/extend.md',
  'docs/index.md',
  'docs/kernels.md',
  'docs/long_runs.md',
  'docs/scale.md',
  'docs/simulators.md',
  'docs/your_model.md',
)


def _blocks(page):
  path = str(_ROOT / page)
  return list(Document.parse(path, PythonCodeBlockParser()))


def _run(blocks):
  """Runs blocks of one page in turn; returns the names that they define."""
  for block in blocks:
    block.evaluate()
  return blocks[0].namespace


def _functions():
  """Yields (name, function) for all public functions, also in catalogues."""
  for name in tfpa.__all__:
    value = getattr(tfpa, name)
    if inspect.isfunction(value):
      yield name, value
    elif inspect.ismodule(value):
      for inner in value.__all__:
        if inspect.isfunction(getattr(value, inner)):
          yield f'{name}.{inner}', getattr(value, inner)


def _example(function):
  """Returns the code under `Example:`, the last section of a docstring."""
  _, _, code = inspect.getdoc(function).partition('\nExample:\n')
  return textwrap.dedent(code)


_EXAMPLES = {name: _example(function) for name, function in _functions()}
# It must come before any operation of a process.
_CACHE = _EXAMPLES.pop('cache_compilations')
_SAMPLERS = [
  name
  for name, code in _EXAMPLES.items()
  if 'tfpa.sample(' in code or 'tfpa.sample_posterior(' in code
]


# What an example imports, and need not be there.
_OPTIONAL = {
  'models.from_jax': 'jax',
  'models.from_numpyro': 'numpyro',
  'models.from_pymc': 'pymc',
}


def _run_example(name):
  """Runs the example of a docstring without XLA, which costs seconds."""
  if name in _OPTIONAL:
    package = _OPTIONAL[name]
    pytest.importorskip(package, reason=f'{package} is not installed')
  assert f'tfpa.{name}(' in _EXAMPLES[name]
  library = types.SimpleNamespace(**{n: getattr(tfpa, n) for n in tfpa.__all__})
  for run in ('sample', 'sample_posterior'):
    quiet = functools.partial(
      getattr(tfpa, run), jit_compile=False, progress=False
    )
    setattr(library, run, quiet)
  names = dict(np=np, tf=tf, tfp=tfp, tfpa=library)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # These runs are short.
    exec(compile(_EXAMPLES[name], name, 'exec'), names)
  return names


@pytest.mark.parametrize('name', sorted({*_EXAMPLES} - {*_SAMPLERS}))
def test_examples_of_parts_make_a_kernel_or_draw(name):
  names = _run_example(name)
  if 'kernel' in names and 'target' in names:
    start = names['target'].sample(4, seed=1)
    with block_fits.promised(names['kernel']):
      results = names['kernel'].bootstrap_results(start)
    assert results is not None
  if 'draws' in names:
    density = tfpa.gaussian_priors.log_prob(names['prior'], names['draws'])
    assert np.isfinite(density).all()


@pytest.mark.full
@pytest.mark.parametrize('name', _SAMPLERS)
def test_examples_of_samplers_move(name, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  names = _run_example(name)
  if 'posterior' in names:
    assert names['posterior'].converged
    return
  for part in tf.nest.flatten(names['result'].states):
    assert np.isfinite(part).all() and np.std(part) > 0.1


def _run_in_process(code, folder):
  """Runs code where no operation came before; returns the folder's content."""
  environment = dict(
    os.environ,
    XDG_CACHE_HOME=str(folder),
    TF_XLA_FLAGS='',
    PYTHONPATH=str(_ROOT),
  )
  subprocess.run([sys.executable, '-c', code], check=True, env=environment)
  return list((folder / 'tfp_adaptive').iterdir())


@pytest.mark.full
def test_the_cache_of_an_example_is_set_in_a_process_that_begins(tmp_path):
  (folder,) = _run_in_process(_CACHE, tmp_path)
  assert re.match(r'tensorflow-', folder.name)


@pytest.mark.full
def test_compile_time_is_short_the_second_time(tmp_path):
  check = (
    "assert second.seconds['compile'] < 0.1 * first.seconds['compile']\n"
    'assert (first.states != second.states).any()\n'
  )
  blocks = _blocks('docs/compile_time.md')
  code = '\n'.join([*(str(block.parsed) for block in blocks), check])
  assert _run_in_process(code, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize(
  'page, place',
  [(page, i) for page in _SEPARATE for i in range(len(_blocks(page)))],
)
def test_examples_that_stand_alone_run_and_move(page, place):
  names = _run([_blocks(page)[place]])
  if 'posterior' in names:
    assert names['posterior'].converged
    return
  states = names['result'].states
  # The coordinate's deviation is 1, or 0.4 for a log intensity given counts.
  assert np.std(np.asarray(states)[..., 0]) > 0.25


def _other_pages():
  """Yields pages with examples; those of results are in a run's own folder."""
  for path in [*_ROOT.glob('*.md'), *_ROOT.glob('docs/**/*.md')]:
    page = path.relative_to(_ROOT).as_posix()
    if (
      page not in (*_SEPARATE, *_WITH_OWN_TEST) and 'results' not in path.parts
    ):
      if '```python' in path.read_text():
        yield page


@pytest.mark.full
@pytest.mark.parametrize('page', sorted(_other_pages()))
def test_the_examples_of_other_pages_run(page):
  assert _run(_blocks(page))


def test_the_example_of_the_first_page_is_that_of_the_readme():
  (first,) = _blocks('docs/index.md')
  assert first.parsed == _blocks('README.md')[0].parsed  # It runs above.


@pytest.mark.full
def test_the_examples_of_kernels_have_the_right_moments():
  first, *blocks = _blocks('docs/kernels.md')
  gaussian = _run([first])['result'].states
  names = _run(blocks)
  location, scale = names['result'].states
  assert gaussian.shape == (5000, 8, 2)
  np.testing.assert_allclose(gaussian.std(axis=(0, 1)), 1.0, rtol=0.05)
  # The last example is sample_chain's, with states of its own.
  assert names['states'].shape == (500, 4, 2)
  assert np.std(names['states'][..., 0]) > 0.25
  # There are 50 observations with deviation 2, and the prior is nearly flat.
  observed = names['observed'].numpy()
  np.testing.assert_allclose(location.mean(), observed.mean(), atol=0.05)
  np.testing.assert_allclose(scale.mean(), observed.std(), rtol=0.1)
  sizes = names['tree'].posterior['scale'].sizes
  assert sizes == {'chain': 8, 'draw': 5000}


@pytest.mark.full
def test_the_examples_of_scale_have_the_right_deviations(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  *draws, devices = _blocks('docs/scale.md')
  names = _run(draws)
  assert names['result'].states.shape == (5000, 4, 20)
  np.testing.assert_allclose(names['first'].std(), 1.0, rtol=0.1)
  np.testing.assert_array_equal(
    names['first'].T, names['result'].states[:, :, 0]
  )
  names = _run([devices])
  assert names['result'].states.shape == (500, 8, 20)
  np.testing.assert_allclose(names['result'].states.std(), 1.0, rtol=0.1)


@pytest.mark.nightly
def test_the_examples_of_your_model_have_their_exact_means():
  found = []
  for block in _blocks('docs/your_model.md'):
    found.append(_run([block])['posterior'])
  joint, flat, density = found
  assert joint.converged and flat.converged and density.converged
  # Gamma(2, 1) and four counts whose sum is ten: Gamma(12, 5).
  np.testing.assert_allclose(joint.states.rate.mean(), 2.4, rtol=0.03)
  # The mean has a t distribution around the mean of the data.
  np.testing.assert_allclose(flat.states.mean.mean(), 17.6 / 6, rtol=0.03)
  # Nothing was observed of the effects, so the scale keeps its prior, exp(1).
  np.testing.assert_allclose(density.states[0].mean(), 1.0, rtol=0.1)


@pytest.mark.nightly
def test_long_runs_resume_where_they_were(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  names = _run(_blocks('docs/long_runs.md'))
  assert 'ended by `max_seconds`' in capsys.readouterr().out
  assert names['posterior'].converged
  # Gamma(2, 1) and four counts whose sum is ten: Gamma(12, 5).
  posterior, later = names['posterior'], names['later']
  np.testing.assert_allclose(posterior.states.rate.mean(), 2.4, rtol=0.03)
  np.testing.assert_array_equal(later.unconstrained, posterior.unconstrained)
  assert posterior.report[-1].name == 'more'
  result, again = names['result'], names['again']
  np.testing.assert_array_equal(result.states, again.states)
  assert len(list(tmp_path.glob('chain/block_*.npz'))) == 5
  assert abs(names['more'].states.std() - 1.0) < 0.1
  data = names['data']
  kept = tfpa.load_posterior('run/posterior.npz', names['model'], **data)
  assert kept.converged
  with pytest.raises(ValueError, match='belongs to another run'):
    tfpa.sample(names['kernel'], names['start'], **dict(names['run'], seed=3))


@pytest.mark.nightly
def test_simulators_have_the_moments_of_a_grid():
  names = _run(_blocks('docs/simulators.md')[:1])
  axes = [np.linspace(-1.2, -0.3, 300), np.linspace(-6.0, -1.0, 300)]
  grid = np.stack(np.meshgrid(*axes, indexing='ij'), -1).reshape(-1, 2)
  values = names['log_density'](grid)
  weights = np.exp(values - values.max())
  weights /= weights.sum()
  mean = weights @ grid
  deviation = np.sqrt(weights @ (grid - mean) ** 2)
  # The draws are those of the second sampler; in its standard errors.
  draws = names['run'].states
  np.testing.assert_allclose(draws.mean((0, 1)), mean, atol=0.3 * deviation[1])


@pytest.mark.nightly
def test_a_noisy_estimate_has_the_posterior_of_the_density_itself():
  imports = dict(np=np, tf=tf, tfpa=tfpa)
  block = _blocks('docs/simulators.md')[1]
  block.namespace.update(imports)
  names = _run([block])
  # Four independent counts, a normal effect each: by quadrature.
  nodes, weights = np.polynomial.hermite_e.hermegauss(80)
  x = np.linspace(-4.0, 4.0, 2001)
  rate = np.exp(x[:, np.newaxis] + nodes)
  density = np.exp(-(x**2) / 8.0)
  for count in names['groups']:
    density *= (weights * rate**count * np.exp(-rate)).sum(-1)
  density /= density.sum()
  mean = density @ x
  deviation = np.sqrt(density @ (x - mean) ** 2)
  draws = names['noisy'].states
  np.testing.assert_allclose(draws.mean(), mean, atol=0.1 * deviation)
  np.testing.assert_allclose(draws.std(), deviation, rtol=0.1)
  assert 0.3 < names['at_one_place'].std() < 1.5


_COMING_FROM = 'docs/coming_from.md'
_LANGUAGES = ('numpyro', 'pymc', 'jax')


def _language(block):
  """Returns the package of another language that a block needs, or `None`."""
  return next((n for n in _LANGUAGES if f'import {n}' in block.parsed), None)


@pytest.mark.nightly
@pytest.mark.parametrize('language', _LANGUAGES)
def test_models_in_other_languages_run_as_they_are(language):
  pytest.importorskip(language, reason=f'{language} is not installed')
  blocks = [b for b in _blocks(_COMING_FROM) if _language(b) == language]
  posterior = _run(blocks)['posterior']
  assert posterior.converged
  # A normal distribution with wide priors: about the mean of the data.
  mean = np.mean(posterior.states['mean'])
  np.testing.assert_allclose(mean, 1.35, atol=0.15)


@pytest.fixture(scope='module')
def coming_from():
  """Returns the names that the page defines, without other languages."""
  return _run([b for b in _blocks(_COMING_FROM) if not _language(b)])


@pytest.mark.nightly
def test_translated_models_find_what_is_known(coming_from):
  names = coming_from
  for name in ('posterior', 'filled', 'censored', 'by_density'):
    assert names[name].converged, name
  effect = names['posterior'].states.effect.mean((0, 1))
  assert np.corrcoef(effect[:, 0], names['site_effect'][:, 0])[0, 1] > 0.9
  # Rows 1 and 4 have outcomes below and above that of the average covariate.
  low, high = names['filled'].states.lacking.mean((0, 1))
  assert low < 0.0 < high
  # Three of nine lifetimes are above 10.
  above = tfp.distributions.LogNormal(
    names['censored'].states.location, names['censored'].states.scale
  ).survival_function(10.0)
  np.testing.assert_allclose(np.mean(above), 3.0 / 9.0, atol=0.1)
  mean = names['by_density'].states['mean'].mean()
  np.testing.assert_allclose(mean, 1.35, atol=0.15)
