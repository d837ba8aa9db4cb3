"""Calls that die are gone on with: the same draws as of one that did not."""

import types

import numpy as np
import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.contracts import targets
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import progress
from tfp_adaptive.driver import sample as sample_lib
from tfp_adaptive.posterior import chains as chains_lib
from tfp_adaptive.posterior import run_file
from tfp_adaptive.posterior import stages
from tfp_adaptive.posterior.engines import host
from tfp_adaptive.posterior.engines.host import HostEngine
from tfp_adaptive.posterior.judge import rounding
from tfp_adaptive.posterior.judge import verdict
from tfp_adaptive.posterior.plan import Place
from tfp_adaptive.posterior.starts import arrival
from tfp_adaptive.posterior.structures import modes
from tfp_adaptive.posterior.structures import structure


class _Killed(BaseException):
  pass


_log_prob = targets.standard_normal


def _sample(folder=None, seed=3, **options):
  options = dict(num_draws=200, min_ess=790, max_gradients=4000) | options
  return tfpa.sample_posterior(
    _log_prob, num_chains=8, seed=seed, init=tf.TensorSpec([2], tf.float64),
    jit_compile=False, progress=False, checkpoint_dir=folder, **options,
  )  # fmt: skip


def _dying(patch, owner, name, after):
  """Lets a method raise when it was called so many times."""
  method, calls = getattr(owner, name), []

  def dying(self, *args, **kwargs):
    if len(calls) == after:
      raise _Killed
    calls.append(None)
    return method(self, *args, **kwargs)

  patch.setattr(owner, name, dying)


@pytest.fixture(scope='module')
def whole():
  return _sample()


@pytest.mark.nightly
def test_a_call_killed_in_turn_is_the_call_that_was_not(
  whole, tmp_path, monkeypatch
):
  monkeypatch.setattr(run_file, '_SECONDS', 0.0)
  monkeypatch.setattr(run_file, '_TIMES_ITS_OWN', 0.0)
  monkeypatch.setattr(host, '_STEPS_TO_SAVE', 50)
  for owner, name, after in (
    (checkpoint.State, 'save', 1),  # While it adapts.
    (chains_lib.Chains, 'run_block', 0),  # Adapted, before it draws on.
    (chains_lib.Chains, 'run_block', 1),
  ):
    with monkeypatch.context() as patch, pytest.raises(_Killed):
      _dying(patch, owner, name, after)
      _sample(tmp_path)
  # What is drawn so far can be looked at.
  partial = tfpa.load_posterior(
    tmp_path / 'posterior.npz', _log_prob, init=tf.TensorSpec([2], tf.float64)
  )
  assert 'ended by an interruption' in repr(partial)
  assert partial.num_gradients < whole.num_gradients
  found = _sample(tmp_path)
  np.testing.assert_array_equal(found.states, whole.states)
  assert found.num_gradients == whole.num_gradients
  assert [stage[:3] for stage in found.report] == [
    stage[:3] for stage in whole.report
  ]
  # Called again it is read, not run.
  with monkeypatch.context() as patch:
    _dying(patch, chains_lib.Chains, 'run_block', 0)
    again = _sample(tmp_path)
  np.testing.assert_array_equal(again.states, whole.states)
  with pytest.raises(ValueError, match=r'another run.*`seed` \(\[0, 3\], now'):
    _sample(tmp_path, seed=4)


def _narrow_ridge(x):
  along, across = tf.unstack(x, axis=-1)
  return -0.5 * along**2 - 0.5 * ((across - along**2) / 0.1) ** 2


@pytest.mark.full
def test_where_proposals_diverge_steps_are_smaller(monkeypatch):
  def dense(states, *others):
    del others
    return structure.Choice(*structure.default_matrix(states.shape[1]))

  # With the map or an exchange no proposal diverges.
  monkeypatch.setattr(structure, 'choose', dense)
  monkeypatch.setattr(modes, 'may_be_helped', lambda draws: False)
  accepted, diverging, engine = [], [], HostEngine
  for accept_prob in (engine.careful_accept_prob, structure.ACCEPT_PROB):
    monkeypatch.setattr(engine, 'careful_accept_prob', accept_prob)
    posterior = tfpa.sample_posterior(
      _narrow_ridge, num_draws=400, num_chains=8, seed=3, progress=False,
      init=tf.TensorSpec([2], tf.float64), max_gradients=40_000,
    )  # fmt: skip
    told = [s.found for s in posterior.report if 'acceptance' in s.found]
    is_careful = accept_prob > structure.ACCEPT_PROB
    assert [t.split(', ')[-1] for t in told] == (
      [f'acceptance {accept_prob}'] * is_careful
    )
    ratio = posterior.trace['least_first_ratio']
    accepted.append(np.mean(np.exp(np.minimum(ratio, 0.0))))
    diverging.append(np.mean(ratio <= -20.0))
  # These are the least of the steps of a draw.
  assert accepted[0] > 0.8 > accepted[1]
  assert diverging[0] < diverging[1]


@pytest.mark.nightly
def test_a_call_ended_by_its_budget_goes_on_with_another(tmp_path):
  short = _sample(tmp_path, max_seconds=1e-6)
  assert 'ended by `max_seconds`' in repr(short)
  longer = _sample(tmp_path)
  assert longer.num_gradients > short.num_gradients and longer.converged
  # It was ended in the first steps, whose states are what there is.
  assert [stage.name for stage in short.report] == ['starts', 'look']
  assert len(short.unconstrained) == 1 and not short.converged
  assert 'ended the run in its warm-up' in short.failed[-1]


class _Short(stages.Run):
  """Chains that disagree, and a budget that pays for no adaptation."""

  converges = False

  def __init__(self, kept=None, max_seconds=float('inf')):
    settings = types.SimpleNamespace(
      num_chains=8, min_ess=400.0, max_seconds=max_seconds,
      max_gradients=1e5, checkpoint_dir=None, reports=progress.SILENT,
    )  # fmt: skip
    problem = types.SimpleNamespace(
      event_size=2, dtype=tf.float32, names=('x',), target_log_prob_fn=None
    )
    super().__init__(problem, settings)
    self.attempts, self.saved = [], []
    self._file = types.SimpleNamespace(read=lambda: kept)

  def _look(self):
    return types.SimpleNamespace(
      is_full=True, num_gradients=3000.0, density=None, is_too_noisy=False,
      may_be_more_careful=False,
    )  # fmt: skip

  def _improved(self, chains, attempt):
    self.attempts.append(attempt)
    return chains, 50_000.0

  def _sample(self, chains, may_adapt):
    del may_adapt
    return self._posterior(chains)

  def _posterior(self, chains, *stages):
    del chains, stages
    is_far = not self.converges
    return types.SimpleNamespace(
      verdict=types.SimpleNamespace(is_far_from_enough=lambda _: is_far),
      converged=self.converges,
    )

  def _save(self, chains, *stages):
    self.saved.append(self._place)


def test_an_adaptation_that_the_budget_leaves_out_is_told_and_gone_on_with():
  told = '`max_gradients`: to adapt again takes 50_000 or more'
  run = _Short()
  assert run().ended_by == told
  assert 'left out: `max_gradients`' in str(run._report[-1])
  place = Place(0, 'sample', False, 50_000.0)
  assert run.saved == [place]
  for is_richer, attempts in ((False, []), (True, [0])):
    report = [stages.Stage('sample', '', 1000.0, 1.0)]
    again = _Short(run_file.Kept(run._look(), report, place, is_richer))
    # The stage that is gone on with was of 1000 gradients.
    assert again().ended_by == told.replace('50', '51' if is_richer else '50')
    # With the same budget nothing is tried anew.
    assert again.attempts == attempts and again.saved == [place]


def test_what_has_converged_without_it_is_done_with_any_budget(monkeypatch):
  monkeypatch.setattr(_Short, 'converges', True)
  run = _Short()
  assert run().ended_by == ''
  assert run.saved == [Place(0, 'done', False)]


def test_what_is_out_of_time_while_it_chooses_chooses_again():
  late = _Short(max_seconds=-1.0)
  assert late().ended_by == '`max_seconds`'
  assert late.saved == []  # The file of before is the right one.


def test_an_interrupt_of_the_last_file_costs_no_posterior():
  class Interrupted(_Short):
    def _save(self, chains, *stages):
      raise KeyboardInterrupt

  run = Interrupted()
  run._place = run._place._replace(attempt=2)
  assert 'to adapt again takes 50_000' in run().ended_by


def _file(folder, starts=1.0):
  settings = types.SimpleNamespace(
    checkpoint_dir=folder, num_chains=8, min_ess=400.0, max_gradients=1e5,
    identity=lambda: dict(seed=[0, 3]),
  )  # fmt: skip
  problem = types.SimpleNamespace(draw_starts=lambda *_: np.full(8, starts))
  return run_file.RunFile(problem, settings)


def test_starts_of_another_call_are_another_run(tmp_path):
  run = _file(tmp_path)._identity()
  _file(tmp_path)._check(dict(run=run))
  with pytest.raises(ValueError, match='it differs in `init`'):
    _file(tmp_path, 2.0)._check(dict(run=run))


@pytest.mark.nightly
def test_what_the_budget_still_pays_for_is_drawn(monkeypatch):
  monkeypatch.setattr(verdict.Verdict, 'asks_for_draws', lambda *_: True)
  posterior = _sample(max_gradients=5500)
  assert 'ended by `max_gradients`' in repr(posterior)
  # 200 draws, as far apart as those, would cost more than what was left.
  num_draws = len(posterior.unconstrained)
  assert 200 < num_draws < 400 and num_draws % 100 == 0
  block = 100 * posterior.thinning * 1.5
  assert 5500 - block < posterior.num_gradients <= 5500
  assert len(np.unique(posterior.unconstrained[:, 0, 0])) > 0.8 * num_draws


@pytest.mark.nightly
def test_half_of_the_gradients_are_of_draws(monkeypatch):
  monkeypatch.setattr(stages.Run, '_draws_are_few', lambda *_: False)
  short = _sample(min_ess=400)
  monkeypatch.undo()
  longer = _sample(min_ess=400)
  assert short.converged and longer.converged
  of_draws = [
    p._chains.gradients_of_draws / p.num_gradients for p in (short, longer)
  ]
  assert of_draws[0] < 0.5 <= of_draws[1]


@pytest.mark.full
@pytest.mark.parametrize(
  'is_settled, failed',
  [
    (
      False,
      'the user ended the run in its warm-up: the result holds the last states '
      'of the warm-up, which are not draws of the posterior',
    ),
    # Adapted, but without a block of draws.
    (True, '1 draw of each chain is too few to judge'),
  ],
)
def test_an_interrupt_leaves_what_there_is(monkeypatch, is_settled, failed):
  method = HostEngine._steps

  def interrupted(self, drawn):
    if self.is_settled or not is_settled:
      raise KeyboardInterrupt
    return method(self, drawn)

  monkeypatch.setattr(HostEngine, '_steps', interrupted)
  posterior = _sample()
  assert posterior.ended_by == 'the user' and not posterior.converged
  assert posterior.unconstrained.shape == (1, 8, 2)
  assert posterior.failed == [failed]
  advice = 'continue with' if is_settled else 'give it more time'
  assert f'next: {advice}' in repr(posterior)


# Chains that disagree in few coordinates wait for no more draws.
@pytest.mark.parametrize(
  'may_adapt, rhat, shift, num_blocks',
  [(True, 1.2, 0, 3), (True, 1.2, 2, 1), (False, 1.2, 0, 1), (True, 0, 0, 1)],
)
def test_chains_adapt_again_once_draws_cost_as_much_as_their_adaptation(
  may_adapt, rhat, shift, num_blocks
):
  run, filled = _begun(), []
  draws = np.random.default_rng(0).normal(size=(100, 8, 2))
  chains = types.SimpleNamespace(
    num_gradients=0.0, is_too_noisy=False, is_lost=np.zeros(8, bool),
    may_be_more_careful=False, cost_less_than_adapting=True,
    choice=structure.Choice(*structure.default_matrix(2)),
    draws=draws + shift * np.arange(8)[:, np.newaxis],
  )  # fmt: skip
  verdict = types.SimpleNamespace(
    asks_for_draws=lambda _: False,
    is_far_from_enough=lambda _: True,
    worst=lambda _: (rhat, 'x') if rhat else None,
  )
  posterior = types.SimpleNamespace(
    verdict=verdict, converged=False, failed=['too few']
  )

  def fill(chains):
    filled.append(chains)
    chains.cost_less_than_adapting = len(filled) < 3

  run._fill_or_keep, run._stage = fill, lambda _: None
  run._posterior = lambda *_: posterior
  assert run._sample(chains, may_adapt) is posterior
  assert len(filled) == num_blocks


_DENSE = structure.Choice(*structure.default_matrix(2))
_MAP = structure.Choice('map', object())


@pytest.mark.parametrize(
  'before, asked, correlation, gets',
  [
    (_DENSE, _DENSE, 0.98, True),
    (_DENSE, _DENSE, 0.0, False),  # Chains agree.
    (_DENSE, _MAP, 0.98, False),  # The map may bring the chains together.
    (_MAP, _MAP, 0.98, True),  # It did not.
    (_MAP, _DENSE, 0.98, True),
  ],
)
def test_chains_that_disagree_get_an_exchange_unless_a_map_is_new(
  monkeypatch, before, asked, correlation, gets
):
  monkeypatch.setattr(stages.Run, '_choose', lambda *_: asked)
  rng = np.random.default_rng(0)
  draws = rng.normal(size=(250, 8, 2))
  for t in range(1, 250):
    draws[t] *= np.sqrt(1.0 - correlation**2)
    draws[t] += correlation * draws[t - 1]
  chains = types.SimpleNamespace(
    choice=before, draws=draws, is_lost=np.zeros(8, bool)
  )
  found = _begun()._choice(chains)
  assert modes.is_exchange(found.part) == gets


@pytest.fixture
def warmed(monkeypatch):
  """Chains that have adapted: 8 chains, 4 draws, 300 gradients."""
  draws = np.random.default_rng(0).normal(size=(4, 8, 2))
  chains = chains_lib.Chains(
    types.SimpleNamespace(
      is_settled=True, states=draws[-1], careful_accept_prob=0.95
    ),
    structure.Choice(*structure.default_matrix(2)),
    types.SimpleNamespace(dtype=tf.float64),
    100,
  )
  chains.recorded = [(draws, dict(target_log_prob=-np.sum(draws**2, axis=-1)))]
  chains.num_gradients = 300.0
  monkeypatch.setattr(chains_lib, 'engine_of', lambda *_: None)
  monkeypatch.setattr(chains_lib, 'start', lambda *_: chains)
  monkeypatch.setattr(stages.Run, '_starts', lambda _: draws[0])
  noise = types.SimpleNamespace(nats=0.0)
  monkeypatch.setattr(rounding, 'measured', lambda *_: noise)
  return chains


def _begun(folder=None, **problem):
  """Returns a `Run` that has traced its density."""
  run = stages.Run(
    types.SimpleNamespace(event_size=2, **problem),
    types.SimpleNamespace(
      num_chains=8, num_draws=100, max_gradients=1e5, checkpoint_dir=folder,
      seed=(0, 1), reports=progress.SILENT, max_seconds=np.inf,
      jit_compile=False, min_ess=400.0, identity=dict,
    ),
  )  # fmt: skip
  run._with_xla = False, ''
  run._density = types.SimpleNamespace(num_calls=100, dtype=tf.float64)
  return run


@pytest.mark.parametrize(
  'owner, name',
  [
    (rounding, 'measured'),
    (arrival, 'lost'),
    (arrival, 'replaced'),
    (stages.Run, '_save'),
  ],
)
def test_an_interrupt_after_the_first_warm_up_keeps_its_chains(
  warmed, monkeypatch, owner, name
):
  def interrupted(*args):
    raise KeyboardInterrupt

  if name == 'replaced':  # All chains but one start again.
    is_lost = np.arange(8) > 0
    monkeypatch.setattr(arrival, 'lost', lambda *_: is_lost)
  monkeypatch.setattr(owner, name, interrupted)
  run = _begun()
  chains = run._look()
  assert chains is warmed
  assert run._ended_by == 'the user'
  assert [stage[::2] for stage in run._report] == [('look', 300.0)]


_BENT = structure.Choice(structure.BENT, None, drivers=(0,))


def _fail(error):
  raise error


def test_only_the_first_warm_up_has_few_steps_tried_again(warmed, monkeypatch):
  shares = []

  def started(*args):
    shares.append(args[4].share_tried)
    return warmed

  monkeypatch.setattr(chains_lib, 'start', started)
  monkeypatch.setattr(arrival, 'lost', lambda *_: np.arange(8) > 6)
  run = _begun()
  chains = run._look()
  run._adapted(chains, 'adapt', chains.choice, 10, 2)
  # The first warm-up is repeated twice, because a chain has not arrived.
  assert shares == [stages._SHARE_TRIED_FIRST] * 3 + [1.0]


@pytest.mark.parametrize(
  'error',
  [
    tf.errors.ResourceExhaustedError(None, None, 'out of memory'),
    checkpoint.NotWritten('the disk is full'),
  ],
)
def test_an_adaptation_that_fails_costs_its_gradients_and_no_draws(
  warmed, monkeypatch, caplog, error
):
  run = _begun()
  engine = types.SimpleNamespace(
    **dict(num_steps=30, num_adaptation_steps=20, cost_of_adapting=3.0),
    **dict(cost=9.0, steps_of_draw=3),
  )
  monkeypatch.setattr(run, '_choice', lambda *_: _BENT)
  monkeypatch.setattr(chains_lib, 'engine_of', lambda *_: engine)
  monkeypatch.setattr(chains_lib, 'start', lambda *_: _fail(error))
  with caplog.at_level('DEBUG', 'tfp_adaptive'):
    assert run._placed(warmed) is warmed
  assert run._place.phase == 'sample' and not run._ended_by
  ((name, found, num_gradients, _),) = run._report
  assert (name, num_gradients) == ('adapt', 90.0)
  assert found in ('failed: out of memory', 'failed: the disk is full')
  assert caplog.records[0].exc_info[1] is error


def test_a_second_warm_up_that_fails_costs_no_chains(warmed, monkeypatch):
  def adapted(self, stage, choice, starts, num_steps, number):
    if number > 1:
      raise checkpoint.NotWritten('the disk is full')
    return warmed

  run = _begun()
  monkeypatch.setattr(arrival, 'lost', lambda *_: np.arange(8) > 0)
  monkeypatch.setattr(stages.Run, '_adapt', adapted)
  assert run._look() is warmed
  assert [str(stage.found) for stage in run._report] == [
    'failed: the disk is full'
  ] * len(stages._LOOKS_AGAIN)


def test_files_of_another_run_are_refused_by_an_adaptation(warmed, monkeypatch):
  run = _begun()
  monkeypatch.setattr(run, '_choice', lambda *_: _BENT)
  error = checkpoint.CheckpointError('of another run')
  monkeypatch.setattr(chains_lib, 'start', lambda *_: _fail(error))
  with pytest.raises(checkpoint.CheckpointError, match='of another run'):
    run._placed(warmed)


def test_a_choice_that_fails_is_not_called_an_adaptation(warmed, monkeypatch):
  run = _begun()

  def evaluated(rows):
    run._density.num_calls += len(rows) // 8
    raise ValueError('no structure')

  run._density.evaluate = evaluated
  assert run._placed(warmed) is warmed
  ((name, found, num_gradients, _),) = run._report
  assert (name, found) == ('structure', 'failed: no structure')
  assert num_gradients == 4 and run._place.phase == 'sample'


@pytest.mark.parametrize(
  'error, advice',
  [
    (OSError(28, 'No space left on device'), 'Make room for the file.'),
    (ValueError('the simulator gave up'), 'if the call is cut off.'),
  ],
)
def test_a_file_that_cannot_be_written_ends_no_call(
  warmed, monkeypatch, tmp_path, error, advice
):
  starts = np.zeros([8, 2])
  run = _begun(tmp_path, draw_starts=lambda *_: starts)
  monkeypatch.setattr(run_file.saved, 'write', lambda *_, **__: _fail(error))
  with pytest.warns(UserWarning, match='cannot be written') as found:
    run._save(warmed)
  assert str(found[0].message).endswith(advice)


@pytest.mark.parametrize(
  'num_chains, num_draws', [(8, 250), (7, 300), (1000, 250), (3000, 3)]
)
def test_every_chain_has_an_equal_share_of_the_pairs(
  warmed, monkeypatch, num_chains, num_draws
):
  number, time = np.meshgrid(
    np.arange(num_chains), np.arange(num_draws), indexing='xy'
  )
  draws = np.stack([number, time], axis=-1)
  warmed.recorded = [(draws, {})]
  is_finite = lambda rows: (rows[:, 0] != 1) | (rows[:, 1] > 0)

  def evaluate(rows):
    evaluated.append(rows)
    return None, np.where(is_finite(rows)[:, None], rows, np.nan)

  def choose(rows, gradients, matrix, diverge, chain):
    np.testing.assert_array_equal(chain, np.unique(rows[:, 0], True, True)[2])
    return warmed.choice

  evaluated, run = [], _begun()
  run._problem.coordinates = ('x', 'y')
  run._density.evaluate = evaluate
  for name, value in (
    ('is_lost', np.zeros(num_chains, bool)),
    ('matrix', None),
    ('diverge', False),
  ):
    monkeypatch.setattr(chains_lib.Chains, name, value)
  monkeypatch.setattr(structure, 'choose', choose)
  run._choose(warmed)
  _, count = np.unique(evaluated[0][:, 0], return_counts=True)
  assert len(np.unique(count)) == 1 and 1000 < np.sum(count) <= 3000


def test_a_pace_ends_a_run_in_time(monkeypatch):
  clock = [10.0]
  pace = sample_lib._Pace(lambda: clock[0])
  assert pace.rows(250, 1) == 4
  pace.took(4, 2.0)
  # A quarter of ten seconds, half a second for each step.
  assert pace.rows(250, 1) == 5 and pace.rows(250, 3) == 1
  clock[0] = 1e4
  assert pace.rows(250, 1) == 250
  clock[0] = -1.0
  with pytest.raises(sample_lib.Cut) as cut, pace.interrupts(_cut):
    pace.rows(250, 1)
  assert not cut.value.by_user
  with pytest.raises(sample_lib.Cut) as cut, pace.interrupts(_cut):
    raise KeyboardInterrupt
  assert cut.value.by_user
  # Without a limit there is nothing to plan, and Ctrl-C is the caller's.
  free = sample_lib._Pace()
  assert free.rows(250, 1) == 250
  with pytest.raises(KeyboardInterrupt), free.interrupts(_cut):
    raise KeyboardInterrupt


def _cut(by_user):
  return sample_lib.Cut(([], {}), None, None, 0, by_user)


_CALLS = []


def _raises_later(x):
  """A normal density in Python that raises after so many calls."""

  def value(rows):
    _CALLS.append(None)
    if len(_CALLS) > 3200:
      raise ZeroDivisionError('the simulator gave up')
    return -0.5 * np.sum(rows**2, axis=-1)

  @tf.custom_gradient
  def log_prob(x):
    found = tf.ensure_shape(
      tf.numpy_function(value, [x], x.dtype), x.shape[:-1]
    )
    return found, lambda upstream: -upstream[:, None] * x

  return log_prob(x)


@pytest.mark.full
def test_a_block_that_fails_costs_no_draws():
  _CALLS.clear()
  posterior = tfpa.sample_posterior(
    _raises_later, num_draws=1000, num_chains=4, progress=False,
    init=tf.TensorSpec([2], tf.float64), max_gradients=20_000,
  )  # fmt: skip
  assert posterior.ended_by == 'an error' and not posterior.converged
  assert 250 <= len(posterior.unconstrained)
  assert any('the simulator gave up' in failed for failed in posterior.failed)


# A call that was cut off goes on with another budget of gradients.


def _sample_cut(folder, max_gradients, **options):
  options = dict(min_ess=400, max_gradients=max_gradients) | options
  return _sample(folder, **options)


def _steps(posterior):
  """Returns the words on the steps of the first adaptation."""
  (found,) = (s.found for s in posterior.report if s.name == 'look')
  return found.rpartition(', ')[2]


@pytest.mark.full
def test_an_adaptation_that_was_cut_off_goes_on_with_more_gradients(
  tmp_path, monkeypatch
):
  with monkeypatch.context() as patch, pytest.raises(_Killed):
    patch.setattr(host, '_STEPS_TO_SAVE', 10)
    _dying(patch, checkpoint.State, 'save', 1)
    _sample_cut(tmp_path / 'cut', 4000)
  whole = _sample_cut(tmp_path / 'whole', 4000)
  richer = _sample_cut(tmp_path / 'richer', 8000)
  with monkeypatch.context() as patch, pytest.raises(_Killed):
    patch.setattr(host, '_STEPS_TO_SAVE', 10)
    _dying(patch, checkpoint.State, 'save', 0)
    _sample_cut(tmp_path / 'cut', 3000)  # A smaller budget resumes, too.
  found = _sample_cut(tmp_path / 'cut', 8000)
  assert _steps(found) == _steps(whole) != _steps(richer)
  assert found.converged


def test_a_fresh_run_writes_all_of_its_draws(tmp_path, recwarn):
  found = _sample(tmp_path, num_draws=1000, min_ess=400, max_gradients=100_000)
  assert found.converged and not recwarn.list
  again = tfpa.load_posterior(
    tmp_path / 'posterior.npz', _log_prob, init=tf.TensorSpec([2], tf.float64)
  )
  np.testing.assert_array_equal(again.unconstrained, found.unconstrained)
  assert again.converged and again.steps_per_draw == found.steps_per_draw


def test_calls_of_the_density_are_counted_beside_steps():
  found = _sample(num_draws=1000, min_ess=400, max_gradients=100_000)
  of_steps, density = found._chains.num_gradients, found._chains.density
  assert found.num_gradients - of_steps > 250  # Pairs to choose a structure.
  assert found.num_gradients == of_steps + density.num_calls


@pytest.mark.parametrize('phase', ['adapt', 'sample'])
def test_a_callback_ends_a_run_and_nothing_is_lost(phase, capfd):
  def callback(update):
    told.append(update)
    return update.phase == phase

  told = []
  found = _sample_cut(None, 4000, callback=callback)
  assert found.ended_by == 'the user' and capfd.readouterr().err == ''
  assert told[-1].phase == phase and 0 < told[-1].step <= told[-1].num_steps
  # In the warm-up there are only the states that it had reached.
  assert (len(found.unconstrained) > 1) == (phase == 'sample')


def test_a_callback_that_cannot_be_called_is_refused():
  with pytest.raises(TypeError, match='`callback` must be a function of one'):
    _sample(callback=True)


# What the file of a cut off call says of the call that goes on.


@pytest.mark.parametrize(
  'budget, is_richer', [(9e4, False), (1e5, False), (1.1e5, True)]
)
@pytest.mark.parametrize('lacking', [0.0, 5e4])
def test_what_a_budget_left_out_is_tried_again_with_a_larger_one_only(
  tmp_path, monkeypatch, budget, is_richer, lacking
):
  problem = types.SimpleNamespace(
    coordinates=['x'], dtype=tf.float64, draw_starts=lambda *_: [0.0]
  )
  settings = types.SimpleNamespace(
    checkpoint_dir=tmp_path, num_chains=1, reports=progress.SILENT,
    max_gradients=budget, identity=lambda: dict(seed=[0, 3]),
  )  # fmt: skip
  file = run_file.RunFile(problem, settings)
  header = dict(
    kind='posterior', coordinates=['x'], dtype='float64', run=file._identity(),
    place=Place(1, 'done', True, lacking), report=[], max_gradients=1e5,
  )  # fmt: skip
  (tmp_path / 'posterior.npz').write_bytes(archive.seal(header, {}))
  monkeypatch.setattr(run_file.saved, 'restore', lambda *_: None)
  kept = file.read()
  assert kept.is_richer == is_richer and kept.place.lacking == lacking
