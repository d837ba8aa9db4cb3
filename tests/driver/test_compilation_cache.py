"""Compiled programs on disk: found again, by what they are and no more."""

import os
import pathlib

import pytest
import tensorflow as tf

import tfp_adaptive as tfpa
from tests.driver import child
from tfp_adaptive.core import tfp_private
from tfp_adaptive.driver import compilation_cache

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


@pytest.mark.nightly
def test_a_later_process_finds_the_program_and_draws_the_same(tmp_path):
  def run(before='', scale='0.5', directory=tmp_path):
    arguments = directory, before, scale
    told = child.run('-c', _SCRIPT, *arguments, TF_XLA_FLAGS='')
    files = tmp_path.glob('*/*.pb')
    return told, {file.name: file.stat().st_mtime_ns for file in files}

  plain, nothing = run(directory='')
  assert not nothing
  draws, files = run()
  assert len(files) == 1 and draws == plain
  # Whatever was traced before, and neither is it written anew.
  assert run(before='op') == (draws, files)
  other, more = run(scale='0.7')
  assert len(more) == 2 and other != draws
