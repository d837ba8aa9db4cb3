"""Comparison with the reference, records, resume, and the command line."""

import json
import sys
import types
import zipfile

import numpy as np
import pytest
import typer.testing

from experiments.__main__ import app
from experiments.framework import json_files
from experiments.posteriordb import cli as cli_lib
from experiments.posteriordb import reference as reference_lib
from experiments.posteriordb import registry
from experiments.posteriordb import run as run_lib
from experiments.posteriordb import theirs
from experiments.run.errors import ConfigError
from experiments.run.errors import DataError
from tests.experiments.posteriordb import test_densities

_NAME = 'kidiq-kidscore_momhs'
_EXACT = {
  'a': reference_lib.Moments(1.0, 0.0, 4.0, 0.0),
  'b': reference_lib.Moments(-5.0, 0.0, 0.25, 0.0),
}


def _draws(seed=0, shift=0.0, stretch=1.0):
  """Returns independent draws of N(1, 2**2) and N(-5, 0.5**2)."""
  random = np.random.default_rng(seed)
  noise = random.normal(size=(2, 1000, 8))
  return {
    'a': 1.0 + 2.0 * stretch * noise[0],
    'b': -5.0 + 0.5 * (noise[1] + shift),
  }


def test_z_is_standard_normal_for_draws_of_the_reference():
  found = [
    reference_lib.compare(_draws(seed), {k: _EXACT[k] for k in _EXACT})
    for seed in range(40)
  ]
  for field in ('worst_z_of_means', 'worst_z_of_squares'):
    z = np.abs([getattr(one, field)[1] for one in found])
    # The larger of two |z| has the median 1.05; the largest of 80 is below 4.5.
    assert 0.6 < np.median(z) < 1.5 and z.max() < 4.5
  assert all(one.rhat < 1.01 and one.ess_bulk > 4000 for one in found)


def test_a_shift_and_a_stretch_are_seen_where_they_are():
  shifted = reference_lib.compare(_draws(shift=0.1), _EXACT)
  assert shifted.worst_z_of_means[0] == 'b'
  # 0.1 deviations with 8000 draws: sqrt(8000) / 10 standard errors.
  assert abs(shifted.worst_z_of_means[1] - 8.9) < 3.0
  stretched = reference_lib.compare(_draws(stretch=1.1), _EXACT)
  assert stretched.worst_z_of_squares[0] == 'a'
  # The variance is 1.21 times as large, its relative error sqrt(2 / 8000).
  expected = 0.21 / (1.21 * np.sqrt(2 / 8000))
  assert abs(stretched.worst_z_of_squares[1] - expected) < 4.0


def test_the_error_of_the_reference_counts():
  doubtful = {
    name: entry._replace(mean_error=1e3) for name, entry in _EXACT.items()
  }
  found = reference_lib.compare(_draws(shift=0.5), doubtful)
  assert abs(found.worst_z_of_means[1]) < 0.1


def test_correlated_draws_have_larger_errors():
  noise = np.random.default_rng(0).normal(size=(4000, 4, 1))
  path = np.zeros_like(noise)
  for t in range(1, len(path)):
    path[t] = 0.9 * path[t - 1] + noise[t]
  (found,) = reference_lib.moments(path, np.zeros(1))
  deviation = 1.0 / np.sqrt(1.0 - 0.9**2)
  # The effective size is (1 - 0.9) / (1 + 0.9) of the draws.
  expected = deviation / np.sqrt(16000 / 19)
  assert abs(found.mean_error / expected - 1.0) < 0.2


def test_draws_of_other_scalars_are_refused():
  with pytest.raises(ValueError, match="'a'.*'b'"):
    reference_lib.compare({'a': np.zeros([10, 2])}, _EXACT)


def _published(folder, draws):
  """Writes reference draws as posteriordb publishes them."""
  chains = [
    {name: part[:, chain].tolist() for name, part in draws.items()}
    for chain in range(8)
  ]
  (folder / 'draws').mkdir()
  with zipfile.ZipFile(folder / 'draws' / f'{_NAME}.json.zip', 'w') as file:
    file.writestr(f'{_NAME}.json', json.dumps(chains))


def test_a_reference_is_computed_from_published_draws(tmp_path):
  draws = _draws()
  _published(tmp_path, draws)
  found = reference_lib.load(_NAME, tmp_path)
  for name, part in draws.items():
    assert found[name].mean == pytest.approx(part.mean())
    assert found[name].square == pytest.approx(part.var())
    error = part.std() / np.sqrt(part.size)
    assert found[name].mean_error == pytest.approx(error, rel=0.2)
    error = np.sqrt(2.0 / part.size) * part.var()
    assert found[name].square_error == pytest.approx(error, rel=0.3)


def test_a_reference_that_is_there_is_read(tmp_path):
  entry = dict(mean=1.0, mean_error=2.0, square=3.0, square_error=4.0, sd=5.0)
  text = json.dumps({_NAME: {'parameters': {'a': entry}}})
  (tmp_path / 'reference.json').write_text(text)
  found = reference_lib.load(_NAME, tmp_path)
  assert found == {'a': reference_lib.Moments(1.0, 2.0, 3.0, 4.0)}


def test_a_folder_without_data_names_the_command(tmp_path):
  task = run_lib.Task(_NAME, run_lib.HERE, 0)
  for call in (
    lambda: reference_lib.load(_NAME, tmp_path),
    lambda: registry.build(_NAME, tmp_path),
    lambda: run_lib.run(task, tmp_path),
  ):
    with pytest.raises(DataError, match='python -m experiments data posterior'):
      call()


_FOUND = {
  'gradients': 1e5,
  'cpu_seconds': 9.0,
  'wall_seconds': 10.0,
  'peak_bytes': 2.0**30,
  'versions': {},
}


def test_a_record_has_the_verdict_of_the_sampler_and_that_of_all():
  task = run_lib.Task(_NAME, run_lib.HERE, 3)
  own = {**_FOUND, 'converged': False, 'failed': ['R-hat'], 'structure': 'map'}
  record = run_lib.finished(task, own, _draws(), _EXACT)
  assert not record['converged'] and record['is_enough']
  assert record['structure'] == 'map' and record['seed'] == 3
  assert record['num_draws'] == 1000 and record['num_chains'] == 8
  assert run_lib.key(json.loads(json.dumps(record))) == task
  # A sampler without a verdict gets that of all.
  assert run_lib.finished(task, _FOUND, _draws(), _EXACT)['converged']
  few = {name: part[:40] for name, part in _draws().items()}
  assert not run_lib.finished(task, _FOUND, few, _EXACT)['converged']


def test_scalars_beyond_the_reference_are_left_out_and_none_may_lack():
  task = run_lib.Task(_NAME, 'Stan', 0, 'float64')
  more = _draws() | {'y_rep[1]': np.zeros([1000, 8])}
  assert run_lib.finished(task, _FOUND, more, _EXACT)['is_enough']
  with pytest.raises(DataError, match='Stan has no draws of b'):
    run_lib.finished(task, _FOUND, {'a': _draws()['a']}, _EXACT)


def test_stan_needs_an_interpreter_and_its_program(tmp_path):
  _published(tmp_path, _draws())
  task = run_lib.Task(_NAME, 'Stan', 0, 'float64')
  with pytest.raises(ConfigError, match='--python PATH.*pystan'):
    run_lib.run(task, tmp_path)
  with pytest.raises(DataError, match='kidscore_momhs.stan is not there'):
    run_lib.run(task, tmp_path, python='python')


@pytest.mark.parametrize(
  'program, status',
  [
    ('raise SystemExit("no memory")', 'failed'),
    ('import time; time.sleep(60)', 'out of time'),
  ],
)
def test_a_process_that_comes_to_no_end_is_a_record(
  program, status, tmp_path, monkeypatch
):
  _published(tmp_path, _draws())
  command = [sys.executable, '-S', '-c', program]
  monkeypatch.setattr(run_lib, '_command', lambda *_: command)
  task = run_lib.Task(_NAME, run_lib.HERE, 0)
  record = run_lib.run(task, tmp_path, max_seconds=3.0)
  assert record['status'] == status and run_lib.key(record) == task
  assert 'no memory' in record.get('error', 'no memory')


def test_the_command_runs_what_is_missing_once(tmp_path, monkeypatch):
  ran = []

  def run(task, folder, python, max_seconds):
    ran.append(task)
    if task.seed == 2 and len(ran) < 8:
      return {**task._asdict(), 'status': 'failed', 'error': ''}
    return run_lib.finished(task, _FOUND, _draws(), _EXACT)

  monkeypatch.setattr(run_lib, 'run', run)
  output = tmp_path / 'deep' / 'runs.jsonl'
  command = ['posteriordb', 'run', '--names', 'arK-arK', 'nes19*6-nes']
  command += ['--seeds', '0', '2', '--output', str(output)]
  runner = typer.testing.CliRunner()
  assert runner.invoke(app, command).exit_code == 0
  names = ['arK-arK', 'nes1976-nes', 'nes1996-nes']
  assert ran == [
    run_lib.Task(name, run_lib.HERE, seed) for seed in (0, 2) for name in names
  ]
  ran.clear()
  runner.invoke(app, command)
  # What failed is run again, and nothing else.
  assert ran == [run_lib.Task(name, run_lib.HERE, 2) for name in names]
  assert len(json_files.read_lines(output)) == 9
  ran.clear()
  command += ['--samplers', 'Stan', '--dtype', 'float32', '--seeds', '0']
  runner.invoke(app, command)
  assert {(task.sampler, task.dtype) for task in ran} == {('Stan', 'float64')}


def test_wrong_commands_are_refused(tmp_path):
  runner = typer.testing.CliRunner()
  output = ['--output', str(tmp_path / 'runs.jsonl')]
  for arguments, words in (
    (['--names', 'arc'], "'arc' is none of arK-arK"),
    (['--samplers', 'Sten'], "'Sten' is none of sample_posterior, Stan"),
    (
      ['--dtype', 'float16'],
      "--dtype is float32 or float64, but got 'float16'",
    ),
  ):
    result = runner.invoke(app, ['posteriordb', 'run', *output, *arguments])
    assert result.exit_code == 2
    assert words in ' '.join(result.output.replace('│', ' ').split())


def test_the_list_has_all_posteriors():
  result = typer.testing.CliRunner().invoke(app, ['posteriordb', 'list'])
  assert result.stdout.split()[: len(registry.NAMES)] == list(registry.NAMES)


def test_values_after_an_option_belong_to_it():
  given = ['--seeds', '0', '1', '--data', 'x', '--names', 'a', '--seeds', '2']
  assert cli_lib._repeated(given) == [
    *['--seeds', '0', '--seeds', '1', '--data', 'x', '--names', 'a'],
    *['--seeds', '2'],
  ]


@pytest.mark.nightly
@test_densities.needs_data
def test_a_run_of_this_library_agrees_with_the_reference():
  name = 'eight_schools-eight_schools_noncentered'
  task = run_lib.Task(name, run_lib.HERE, 1, 'float64')
  record = run_lib.run(task, test_densities.FOLDER)
  assert record['status'] == 'finished', record.get('error')
  assert record['converged'] and record['is_enough']
  for field in ('worst_z_of_means', 'worst_z_of_squares'):
    assert abs(record[field][1]) < 5.0
  assert record['cpu_seconds'] < record['process_cpu_seconds']


_FAKE_STAN = """
import numpy as np

class Fit:
  sample_and_sampler_param_names = ('lp__', 'n_leapfrog__', 'divergent__')
  constrained_param_names = ('a', 'b.1')

  def __init__(self, size):
    noise = np.random.default_rng(0).normal(size=(2, *size))
    drawn = np.array([1.0, -5.0])[:, None, None] + noise
    self.values = np.concatenate([np.ones((3, *size)), drawn])

class Model:
  def sample(self, num_chains, num_samples, num_warmup, save_warmup):
    return Fit((num_warmup + num_samples, num_chains))

def build(program, data, random_seed):
  assert program == 'model {}' and data == {'x': [1.5, 2.0]}, (program, data)
  assert random_seed == 3
  return Model()
"""


def test_a_run_of_another_interpreter_ends_as_a_record(tmp_path):
  packages = tmp_path / 'packages'
  for name in ('pystan', 'httpstan'):
    (packages / f'{name}-3.dist-info').mkdir(parents=True)
    text = f'Metadata-Version: 2.1\nName: {name}\nVersion: 3\n'
    (packages / f'{name}-3.dist-info' / 'METADATA').write_text(text)
  (packages / 'stan.py').write_text(_FAKE_STAN)
  python = tmp_path / 'python'
  python.write_text(
    f'#!/bin/sh\nPYTHONPATH="{packages}" exec "{sys.executable}" "$@"\n'
  )
  python.chmod(0o755)
  folder = tmp_path / 'posteriordb'
  (folder / 'stan').mkdir(parents=True)
  (folder / 'stan' / 'kidscore_momhs.stan').write_text('model {}')
  with zipfile.ZipFile(folder / 'kidiq.json.zip', 'w') as file:
    file.writestr('kidiq.json', '{"x": [1.5, 2.0]}')
  exact = dict(mean_error=0.0, square=1.0, square_error=0.0)
  entries = {'a': dict(exact, mean=1.0), 'b[1]': dict(exact, mean=-5.0)}
  reference = json.dumps({_NAME: {'parameters': entries}})
  (folder / 'reference.json').write_text(reference)
  task = run_lib.Task(_NAME, 'Stan', 2, 'float64')
  record = run_lib.run(task, folder, python=str(python))
  assert record['status'] == 'finished', record.get('error')
  assert record['converged'] and record['gradients'] == 8 * 2000.0
  for field in ('worst_z_of_means', 'worst_z_of_squares'):
    assert abs(record[field][1]) < 4.0
  assert 0.0 <= record['compile_cpu_seconds'] <= record['cpu_seconds']
  # With the imports.
  assert record['cpu_seconds'] < record['process_cpu_seconds'] < 60.0
  assert record['peak_bytes'] > 1e6


class _Fit:
  """What PyStan returns for two parameters, warm-up included."""

  sample_and_sampler_param_names = ('lp__', 'n_leapfrog__', 'divergent__')
  constrained_param_names = ('sigma', 'beta.1', 'beta.2')

  def __init__(self, num_draws, num_chains):
    shape = [len(self.constrained_param_names), 1000 + num_draws, num_chains]
    drawn = np.random.default_rng(0).normal(size=shape)
    taken = np.full([1, *shape[1:]], 7.0)
    zeros = np.zeros([1, *shape[1:]])
    self.values = np.concatenate([zeros, taken, zeros, drawn])


def _run_theirs(sampler, folder, monkeypatch):
  """Runs the other side in this process; returns record, names and draws."""
  monkeypatch.setattr(theirs.importlib.metadata, 'version', lambda _: '3')
  program, data = folder / 'model.stan', folder / 'data.json'
  program.write_text('model {}')
  data.write_text('{"N": 2}')
  output = str(folder / 'draws.npz')
  arguments = [program, data, sampler, 5, 4, 100, output]
  monkeypatch.setattr(sys, 'argv', ['theirs.py', *map(str, arguments)])
  monkeypatch.setattr(sys, 'path', list(sys.path))
  theirs.main()
  with np.load(output) as file:
    record = json.loads(str(file['record']))
    return record, file['names'].tolist(), file['draws']


def test_the_side_of_stan_writes_draws_and_the_gradients_of_warm_up(
  tmp_path, monkeypatch
):
  asked = {}

  def build(program, data, random_seed):
    asked.update(program=program, data=data, seed=random_seed)
    sample = lambda **options: (
      asked.update(options)
      or _Fit(options['num_samples'], options['num_chains'])
    )
    return types.SimpleNamespace(sample=sample)

  monkeypatch.setitem(sys.modules, 'stan', types.SimpleNamespace(build=build))
  record, names, draws = _run_theirs('Stan', tmp_path, monkeypatch)
  assert asked['program'] == 'model {}' and asked['data'] == {'N': 2}
  assert asked['seed'] == 5 and asked['save_warmup']
  assert names == ['sigma', 'beta[1]', 'beta[2]']
  assert draws.shape == (100, 4, 3)
  assert record['gradients'] == 7.0 * 1100 * 4
  assert record['run_cpu_seconds'] >= 0.0
  assert record['versions'] == {'pystan': '3', 'httpstan': '3'}


def test_the_side_of_nutpie_writes_draws_and_the_gradients_of_warm_up(
  tmp_path, monkeypatch
):
  asked = {}

  def sample(model, draws, chains, **options):
    asked.update(options, model=model)
    beta = np.arange(chains * draws * 2.0).reshape(chains, draws, 2)
    steps = np.full([chains, draws], 7)
    return types.SimpleNamespace(
      posterior={'beta': beta, 'sigma': beta[..., 0]},
      sample_stats={'n_steps': steps, 'diverging': steps > 7},
      warmup_sample_stats={'n_steps': 2 * steps},
    )

  compiled = lambda code: types.SimpleNamespace(
    with_data=lambda **data: (code, data)
  )
  module = types.SimpleNamespace(compile_stan_model=compiled, sample=sample)
  monkeypatch.setitem(sys.modules, 'nutpie', module)
  record, names, draws = _run_theirs('nutpie', tmp_path, monkeypatch)
  assert asked['model'] == ('model {}', {'N': 2}) and asked['seed'] == 5
  assert names == ['beta[1]', 'beta[2]', 'sigma']
  # Chains come first there, and draws here.
  np.testing.assert_array_equal(draws[1, 2], [402.0, 403.0, 402.0])
  assert record['gradients'] == 3 * 7.0 * 100 * 4
  assert record['num_diverging'] == 0
