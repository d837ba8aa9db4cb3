"""A saved posterior is the same posterior, and goes on with the same bits."""

import copy
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_adaptive as tfpa
from tfp_adaptive.driver import archive
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import density as density_lib
from tfp_adaptive.posterior import saved as saved_lib
from tfp_adaptive.posterior.engines import recorded
from tfp_adaptive.posterior.model import problem as problem_lib
from tfp_adaptive.posterior.posterior import Posterior
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.structures import structure

tfb = tfp.bijectors
tfd = tfp.distributions

_INIT = dict(
  place=tf.TensorSpec([2], tf.float64), scale=tf.TensorSpec([], tf.float64)
)
_BIJECTORS = dict(scale=tfb.Exp())


def _density(shift=0.0):
  def log_prob(place, scale):
    square = tf.reduce_sum((place - shift) ** 2, axis=-1)
    return -0.5 * square - scale

  return log_prob


def _posterior(choice):
  """Returns a `Posterior` without the search for its structure."""
  problem = problem_lib.of_density(_density(), _INIT, _BIJECTORS, 4)
  chains = _started(problem, choice, num_adaptation_steps=60, num_draws=100)
  chains.run_block()
  chains.run_block()  # Of full chains: every second draw has gone.
  return Posterior(
    problem, chains, [Stage('look', 'x', 1.5, 2.0)], 10.0, '`max_seconds`'
  )


def _started(problem, choice, num_adaptation_steps, num_draws):
  """Returns `Chains` of a problem, adapted and with a first block."""
  density = density_lib.Density(problem, 4)
  starts = problem.draw_starts(4, [1, 2])
  engine = chains_lib.engine_of(
    density, choice, starts, [1, 2], num_adaptation_steps, False
  )
  return chains_lib.start(
    engine, choice, density, num_draws, recorded.Options()
  )


def _loaded(path, density=None, **changed):
  options = dict(init=_INIT, bijectors=_BIJECTORS) | changed
  return tfpa.load_posterior(path, density or _density(), **options)


@pytest.fixture(scope='module')
def saved(tmp_path_factory):
  """Returns a posterior behind a conditional map, and its file."""
  choice = structure.rebuilt('conditional Gaussian', 3, {}, [2], [0.5])
  posterior = _posterior(choice)
  path = tmp_path_factory.mktemp('saved') / 'made' / 'posterior.npz'
  posterior.save(path)
  return posterior, path


def _assert_same_draws(one, two):
  for a, b in zip(
    tf.nest.flatten((one.states, one.trace)),
    tf.nest.flatten((two.states, two.trace)),
    strict=True,
  ):
    np.testing.assert_array_equal(a, b)


@pytest.mark.full
def test_what_is_loaded_is_what_was_saved(saved):
  posterior, path = saved
  loaded = _loaded(path)
  _assert_same_draws(loaded, posterior)
  assert repr(loaded) == repr(posterior) and loaded.thinning == 2
  assert loaded.choice == 'conditional Gaussian'
  assert loaded.report == posterior.report
  for one, two in zip(
    tf.nest.flatten(loaded.kernel.bootstrap_results(loaded.unconstrained[-1])),
    tf.nest.flatten(
      posterior.kernel.bootstrap_results(posterior.unconstrained[-1])
    ),
    strict=True,
  ):
    np.testing.assert_array_equal(one, two)


@pytest.mark.full
def test_it_goes_on_with_the_same_bits(saved):
  posterior, path = saved
  more, again = posterior.more(100), _loaded(path).more(100)
  _assert_same_draws(again, more)
  assert more.num_gradients > posterior.num_gradients
  # Power: noise of other steps is other noise.
  chains = copy.copy(posterior._chains)
  chains.engine = copy.copy(chains.engine)
  chains.engine.num_steps += 1
  chains.extend_to(200)
  chains.run_block()
  count = len(chains.draws)
  assert np.any(chains.draws != more.unconstrained[:count])


@pytest.mark.full
def test_another_model_is_refused(saved):
  path = saved[1]
  with pytest.raises(ValueError, match='or other data: log density where'):
    _loaded(path, _density(shift=0.1))
  other = dict(_INIT, place=tf.TensorSpec([3], tf.float64))
  with pytest.raises(ValueError, match=r'3 coordinates \(place\[0\].* 4 '):
    _loaded(path, init=other)
  single = {name: tf.TensorSpec(spec.shape) for name, spec in _INIT.items()}
  with pytest.raises(ValueError, match='float64.*float32'):
    _loaded(path, init=single)


@pytest.mark.full
def test_a_model_that_differs_only_far_from_the_chains_is_told(saved):
  posterior, path = saved
  with warnings.catch_warnings():
    warnings.simplefilter('error')
    _loaded(path)

  def other(place, scale):
    # A prior that is felt only far from the chains.
    far = tf.nn.relu(tf.reduce_sum(place**2, axis=-1) - 1e6)
    return _density()(place, scale) - far

  with pytest.warns(UserWarning, match='another program of the log density'):
    found = _loaded(path, other)
  np.testing.assert_array_equal(found.unconstrained, posterior.unconstrained)
  with pytest.raises(ValueError, match='has changed since the draws were made'):
    found.more(10)
  # The draws do not become those of the other model when they are saved.
  found.save(path.with_name('again.npz'))
  with pytest.warns(UserWarning, match='another program of the log density'):
    _loaded(path.with_name('again.npz'), other)
  problem = problem_lib.of_density(other, _INIT, _BIJECTORS, 4)
  with pytest.raises(ValueError, match='or another `checkpoint_dir`'):
    saved_lib.restore(path, *saved_lib.read(path), problem)


@pytest.mark.full
def test_files_that_are_none_are_refused(saved, tmp_path):
  content = saved[1].read_bytes()
  path = tmp_path / 'posterior.npz'
  with pytest.raises(FileNotFoundError, match='There is no file'):
    _loaded(path)
  path.write_bytes(content[:-1000])
  with pytest.raises(ValueError, match='is damaged'):
    _loaded(path)
  path.write_bytes(archive.seal(dict(kind='other'), {}))
  with pytest.raises(ValueError, match='holds no posterior'):
    _loaded(path)
  with pytest.raises(ValueError, match='is a folder. Pass the file'):
    _loaded(tmp_path)
  header, arrays = archive.unseal(saved[1])
  del arrays['point.rows']
  path.write_bytes(archive.seal(dict(header, version='0.0'), arrays))
  with pytest.raises(ValueError, match='saved by version 0.0'):
    _loaded(path)


@pytest.mark.full
def test_other_data_are_refused_by_name_though_no_density_tells(tmp_path):
  model = tfd.JointDistributionNamed(
    dict(
      mu=tfd.Normal(np.float64(0.0), 1.0),
      y=lambda mu: tfd.Sample(tfd.Normal(mu, 1.0), 3),
    )
  )
  data = np.array([1.0, 2.0, 4.5])
  problem = problem_lib.of_joint(model, dict(y=data), num_chains=4)
  choice = structure.Choice(*structure.default_matrix(1))
  chains = _started(problem, choice, num_adaptation_steps=20, num_draws=40)
  posterior = Posterior(problem, chains, [], 10.0)
  path = tmp_path / 'posterior.npz'
  posterior.save(path)
  _assert_same_draws(tfpa.load_posterior(path, model, y=data), posterior)
  # In another order they are as likely everywhere.
  with pytest.raises(ValueError, match='other data: they differ in y'):
    tfpa.load_posterior(path, model, y=data[::-1].copy())


@pytest.mark.parametrize('event_size', [1, 3, 2000])
def test_every_structure_is_rebuilt_by_its_name(event_size):
  for name in structure._builders(event_size):
    is_map = 'conditional' in name
    found = dict(
      drivers=(0,) if is_map else (), exponents=(1.0,) if is_map else ()
    )
    choice = structure.rebuilt(name, event_size, dict(a=1.0), **found)
    assert choice._replace(part=None) == structure.Choice(
      name, None, dict(a=1.0), **found
    )
    assert hasattr(choice.part, 'bijector') == is_map
