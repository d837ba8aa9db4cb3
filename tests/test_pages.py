"""Pages on running: their examples do what the text says, by its numbers."""

import os
import pathlib
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa

_DOCS = pathlib.Path(tfpa.__file__).resolve().parents[1] / 'docs'


def _text(page):
  return (_DOCS / f'{page}.md').read_text()


def _blocks(page):
  return re.findall(r'```python\n(.*?)```', _text(page), re.DOTALL)


def _run(page, names, blocks=None):
  for code in _blocks(page) if blocks is None else blocks:
    exec(compile(code, f'{page}.md', 'exec'), names)
  return names


@pytest.mark.nightly
def test_long_runs_go_on_where_they_were(tmp_path, monkeypatch, capsys):
  monkeypatch.chdir(tmp_path)
  names = _run('long_runs', {})
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
def test_simulators_have_the_moments_of_a_grid(capsys):
  names = _run('simulators', {})
  shown = re.search(r'```text\n(.*?)```', _text('simulators'), re.DOTALL)[1]
  printed = capsys.readouterr().out
  for name in ('kernel_hamiltonian', 'adaptive_metropolis'):
    assert name in shown and name in printed
  sizes = [
    [int(n) for n in re.findall(r'(\d+) effective', text)]
    for text in (shown, printed)
  ]
  np.testing.assert_allclose(*sizes, rtol=0.5)
  axes = [np.linspace(-1.2, -0.3, 300), np.linspace(-6.0, -1.0, 300)]
  grid = np.stack(np.meshgrid(*axes, indexing='ij'), -1).reshape(-1, 2)
  values = names['log_density'](grid)
  weights = np.exp(values - values.max())
  weights /= weights.sum()
  mean = weights @ grid
  deviation = np.sqrt(weights @ (grid - mean) ** 2)
  exact = re.search(r'grid says \[(.*?)\] \+- \[(.*?)\]', _text('simulators'))
  for found, text in zip((mean, deviation), exact.groups()):
    np.testing.assert_allclose(found, np.fromstring(text, sep=' '), atol=0.006)
  spread = weights @ np.prod(grid - mean, axis=-1) / np.prod(deviation)
  said = re.search(r'correlated by (0\.\d+)', _text('simulators'))[1]
  assert abs(spread - float(said)) < 0.01
  # Of the second sampler, the one that is left, in its standard errors.
  draws = names['run'].states
  np.testing.assert_allclose(draws.mean((0, 1)), mean, atol=0.3 * deviation[1])


@pytest.mark.nightly
def test_a_noisy_estimate_has_the_posterior_of_the_density_itself():
  blocks = _blocks('simulators')
  imports = blocks[0].partition('\n\n\n')[0]
  names = _run('simulators', {}, [imports, blocks[1]])
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


@pytest.mark.full
def test_the_page_on_compile_time_runs_from_top_to_bottom(tmp_path):
  # In a process of its own: the first operation ends the time for a cache.
  check = """
import numpy as np
assert second.seconds['compile'] < 0.1 * first.seconds['compile']
assert np.any(first.states != second.states)
"""
  environment = dict(
    os.environ,
    XDG_CACHE_HOME=str(tmp_path),
    TF_XLA_FLAGS='',
    PYTHONPATH=str(_DOCS.parent),
  )
  code = '\n'.join([*_blocks('compile_time'), check])
  subprocess.run([sys.executable, '-c', code], check=True, env=environment)
  assert list((tmp_path / 'tfp_adaptive').rglob('*'))


@pytest.mark.nightly
def test_the_latent_field_of_the_page_on_choices_passes_the_check():
  with warnings.catch_warnings():
    # R-hat above 1.01, or fewer than 400 effective draws.
    warnings.simplefilter('error', UserWarning)
    result = _run('choose', {}, _blocks('choose')[:1])['result']
  assert result.states.shape[1:] == (4, 200)


def _kernels():
  """Yields (kernel, start) of every family and structure."""
  target = tfp.distributions.MultivariateNormalDiag(tf.zeros(3)).log_prob
  start = tf.zeros([4, 3])
  structures = tfpa.preconditioners
  for structure in (
    structures.cholesky(),
    structures.diagonal(),
    structures.tridiagonal(),
    structures.banded(2),
    structures.arrow(1),
    structures.low_rank(1),
  ):
    yield (
      tfpa.fisher_divergence_hamiltonian(target, 50, preconditioner=structure),
      start,
    )
  for build in (
    tfpa.adaptive_metropolis,
    tfpa.gradient_adaptive_random_walk,
    tfpa.kernel_hamiltonian,
    lambda f, n: tfpa.entropy_adaptive_hamiltonian(f, n, num_leapfrog_steps=3),
    lambda f, n: tfpa.transport_adaptive_hamiltonian(
      f, n, num_leapfrog_steps=3
    ),
    lambda f, n: tfpa.transport_adaptive_hamiltonian(
      f, n, transport=tfpa.transports.conditional_gaussian()
    ),
  ):
    yield build(target, 50), start
  priors = tfpa.gaussian_priors
  likelihood = lambda x: tf.reduce_sum(2.0 * x - tf.exp(x), axis=-1)
  for prior in (
    priors.random_walk(0.1, 20, 1.0),
    priors.spectral(np.eye(20, dtype=np.float32)),
    priors.stationary(20, lambda distance: tf.exp(-(distance**2))),
  ):
    start = tf.zeros([4, *prior.event_shape])
    yield tfpa.marginal_gradient(likelihood, prior, 50), start
    yield tfpa.elliptical_slice(likelihood, prior), start


@pytest.mark.nightly
def test_every_op_of_a_step_has_a_gpu_kernel():
  # Of what the page says: its own function, over all that the library builds.
  names = _run('gpu', {})
  for kernel, start in _kernels():
    assert names['without_gpu_kernel'](kernel, start) == []
  in_python = tfpa.adaptive_metropolis(
    lambda x: tf.ensure_shape(
      tf.numpy_function(lambda x: -np.sum(x**2, -1), [x], tf.float32), [4]
    ),
    50,
  )
  found = names['without_gpu_kernel'](in_python, tf.zeros([4, 3]))
  assert found == ['PyFunc']
