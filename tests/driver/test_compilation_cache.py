"""Compiled programs on disk: found again, by what they are and no more."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tfp_adaptive.core import tfp_private
from tfp_adaptive.driver import compilation_cache

_ROOT = pathlib.Path(tfpa.__file__).parent.parent
_FLAG = '--tf_xla_persistent_cache_directory='
_SCRIPT = """
import sys
import tensorflow as tf
import tfp_adaptive as tfpa

directory, before, scale = sys.argv[1:]
if directory:
  tfpa.cache_compilations(directory)
if before == 'op':
  tf.function(lambda x: 2.0 * x)(tf.ones([3]))
kernel = tfpa.adaptive_metropolis(
  lambda x: -float(scale) * tf.reduce_sum(x**2, axis=-1), 3
)
run = tfpa.sample(kernel, tf.zeros([4, 2]), 5, progress=False, block_size=8)
print(run.states.tobytes().hex())
"""


@pytest.fixture
def fresh(monkeypatch):
  """Lets TensorFlow look as before its first op, and its flags as unset."""
  monkeypatch.setattr(tfp_private, 'has_started', lambda: False)
  monkeypatch.setenv('TF_XLA_FLAGS', '')
  monkeypatch.setenv('XLA_FLAGS', '')


def test_the_flag_names_a_folder_of_this_version(fresh, tmp_path):
  folder = tfpa.cache_compilations(tmp_path / 'new')
  assert os.path.isdir(folder)
  assert pathlib.Path(folder).parent == tmp_path / 'new'
  assert f'{_FLAG}{folder}' in os.environ['TF_XLA_FLAGS'].split()
  assert tf.__version__ in pathlib.Path(folder).name


def test_without_a_folder_it_is_that_of_caches(fresh, monkeypatch, tmp_path):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  folder = tfpa.cache_compilations()
  assert pathlib.Path(folder).parent == tmp_path / 'tfp_adaptive'


def test_other_flags_stay(fresh, monkeypatch, tmp_path):
  monkeypatch.setenv('TF_XLA_FLAGS', '--tf_xla_clustering_debug')
  tfpa.cache_compilations(tmp_path)
  assert os.environ['TF_XLA_FLAGS'].startswith('--tf_xla_clustering_debug ')


def test_another_flag_of_tensorflow_has_another_folder(
  fresh, monkeypatch, tmp_path
):
  one, two = '--tf_xla_clustering_debug', '--tf_xla_clustering_fuel=9'
  folders = []
  for flags in ('', one, two, f'{one} {two}', f'{two} {one}'):
    monkeypatch.setenv('TF_XLA_FLAGS', flags)
    folders.append(tfpa.cache_compilations(tmp_path))
  assert len(set(folders)) == 4
  assert folders[-2] == folders[-1]  # In any order they are the same.


def test_a_second_call_changes_nothing(fresh, monkeypatch, tmp_path):
  folder = tfpa.cache_compilations(tmp_path)
  flags = os.environ['TF_XLA_FLAGS']
  monkeypatch.setattr(tfp_private, 'has_started', lambda: True)
  assert tfpa.cache_compilations(tmp_path) == folder
  assert os.environ['TF_XLA_FLAGS'] == flags
  with pytest.raises(ValueError, match='sets another folder already'):
    tfpa.cache_compilations(tmp_path / 'other')


@pytest.mark.parametrize('what', ['processor', 'flags', 'version'])
def test_another_processor_flag_or_version_has_another_folder(
  what, fresh, monkeypatch, tmp_path
):
  cpu = tmp_path / 'cpuinfo'
  cpu.write_text('processor : 0\nflags : sse avx\nflags : sse avx\n')
  monkeypatch.setattr(compilation_cache, '_CPU_INFO', cpu)
  before = compilation_cache._identity([])
  cpu.write_text('processor : 1\nflags : sse avx\n')
  assert compilation_cache._identity([]) == before
  if what == 'processor':
    cpu.write_text('processor : 0\nflags : sse avx avx512f\n')
  elif what == 'flags':
    monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_enable_fast_math=true')
  else:
    monkeypatch.setattr(tf.version, 'GIT_VERSION', 'another')
  assert compilation_cache._identity([]) != before


def test_after_the_first_op_it_is_refused(monkeypatch, tmp_path):
  monkeypatch.setenv('TF_XLA_FLAGS', '')
  tf.ones([2])
  with pytest.raises(RuntimeError, match='right after the imports'):
    tfpa.cache_compilations(tmp_path)
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  'name, message',
  [('a b', 'takes no spaces'), ('file/below', 'cannot be written to')],
)
def test_a_folder_that_cannot_be_is_refused(name, message, fresh, tmp_path):
  (tmp_path / 'file').write_text('')
  with pytest.raises(ValueError, match=message):
    tfpa.cache_compilations(tmp_path / name)


def _number_of_a_traced_function():
  @tf.function(autograph=False)
  def double(x):
    compilation_cache.number_names()
    return 2.0 * x

  name = double.get_concrete_function(tf.TensorSpec([2])).name
  return int(re.search(rb'_(\d+)$', name).group(1))


@pytest.mark.parametrize('is_set', [True, False])
def test_names_are_numbered_anew_where_a_folder_is_set(is_set, monkeypatch):
  tf.ones([2])  # TensorFlow has read its flags.
  before = _number_of_a_traced_function()
  monkeypatch.setenv('TF_XLA_FLAGS', f'{_FLAG}/a/folder' if is_set else '')
  after = _number_of_a_traced_function()
  rounds = compilation_cache._MOST_NAMES
  assert (after // rounds > before // rounds) == is_set
  assert (after % rounds if is_set else after - before) < 50


@pytest.mark.nightly
def test_a_later_process_finds_the_program_and_draws_the_same(tmp_path):
  def run(before='', scale='0.5', directory=tmp_path):
    done = subprocess.run(
      [sys.executable, '-c', _SCRIPT, str(directory), before, scale],
      env=dict(os.environ, PYTHONPATH=str(_ROOT), TF_XLA_FLAGS=''),
      capture_output=True,
      text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    files = tmp_path.glob('*/*.pb')
    return done.stdout, {file.name: file.stat().st_mtime_ns for file in files}

  plain, nothing = run(directory='')
  assert not nothing
  draws, files = run()
  assert len(files) == 1 and draws == plain
  # Whatever was traced before, and neither is it written anew.
  assert run(before='op') == (draws, files)
  other, more = run(scale='0.7')
  assert len(more) == 2 and other != draws
