"""What a run writes while it goes: a bar on a terminal, else lines."""

import io
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

import pytest
import tensorflow as tf

from tfp_adaptive.driver import progress as progress_lib
from tfp_adaptive.driver import quiet


class _Clock(NamedTuple):
  monotonic: Callable


class _Terminal(io.StringIO):
  def isatty(self):
    return True


class _Notebook(io.StringIO):
  __module__ = 'ipykernel.iostream'


@pytest.fixture(autouse=True)
def clock(monkeypatch):
  """Lets a second pass between two updates; terminals have 80 columns."""
  seconds = iter(range(10_000))
  monkeypatch.setattr(progress_lib, 'time', _Clock(lambda: next(seconds)))
  monkeypatch.setenv('COLUMNS', '80')


def _shown(text):
  """Returns the lines that a reader of a terminal sees in the end."""
  lines = []
  for line in text.split('\n'):
    seen = ''
    for part in line.split('\r'):
      seen = part + seen[len(part) :]
    lines.append(seen.rstrip())
  return lines


def _written(stream, steps=range(0, 101, 10), **options):
  with progress_lib.Progress(
    100, stream=stream, num_discarded=50, **options
  ) as progress:
    for step in steps:
      progress.update(step, 'adapt' if step < 50 else 'sample', 0.5)
  return stream.getvalue() if stream else ''


@pytest.mark.parametrize('kind', [_Terminal, _Notebook])
def test_a_bar_is_one_line_written_anew(kind):
  text = _written(kind())
  assert text.count('\r') == 11 and text.count('\n') == 1
  bar = '#' * 24
  assert _shown(text) == [
    f'sampling 50/50 [{bar}] accept 0.50 10 steps/s, 0 s left',
    '',
  ]


@pytest.mark.parametrize('kind', [io.StringIO, _Terminal, _Notebook])
def test_nothing_is_written_where_nothing_is_wanted(kind):
  stream = kind()
  with progress_lib.Progress(
    2, reports=progress_lib.SILENT, stream=stream
  ) as progress:
    with progress.compiling():
      progress.update(1, 'adapt', 0.5)
    progress.update(2, 'sample', 0.5)
  assert stream.getvalue() == ''


def test_a_callback_is_told_and_can_end_the_run():
  told = []

  def callback(update):
    told.append(update)
    return update.step == 2

  reports = progress_lib.Reports(is_shown=False, callback=callback)
  with pytest.raises(progress_lib.Stopped):
    with progress_lib.Progress(9, reports, stream=io.StringIO()) as progress:
      for step in range(9):
        progress.update(step, 'adapt', 0.5)
  assert told == [('adapt', step, 9, 0.5) for step in range(3)]


def test_lines_go_to_stderr_unless_logging_is_set_up(monkeypatch):
  stream, records = io.StringIO(), []
  handler = logging.Handler()
  handler.emit = lambda record: records.append(record.getMessage())
  monkeypatch.setattr(sys, 'stderr', stream)
  root = logging.getLogger()
  monkeypatch.setattr(root, 'handlers', [])
  progress_lib.say('100 %s')
  monkeypatch.setattr(root, 'handlers', [handler])
  progress_lib.say('logged')
  monkeypatch.setattr(sys, 'stderr', None)
  progress_lib.say('and no stream')
  assert stream.getvalue() == '100 %s\n'
  assert records == ['logged', 'and no stream']


def test_the_time_of_a_compilation_is_told_while_it_lasts(monkeypatch):
  monkeypatch.setattr(progress_lib, '_SECONDS_BETWEEN_TICKS', 0.001)
  num_threads, stream = threading.active_count(), _Terminal()
  with progress_lib.Progress(100, stream=stream) as progress:
    with pytest.raises(ZeroDivisionError):
      with progress.compiling():
        while 'compiling 3 s' not in stream.getvalue():
          time.sleep(0.001)
        raise ZeroDivisionError
    assert threading.active_count() == num_threads
    progress.update(1, 'sample', None)
  assert 'compiling' not in ''.join(_shown(stream.getvalue()))


class _Closed(_Terminal):
  """A pipe whose reader has gone after some writes."""

  num_left = 2

  def write(self, text):
    self.num_left -= 1
    if self.num_left < 0:
      raise BrokenPipeError(32, 'Broken pipe')
    return super().write(text)


def test_a_pipe_that_is_closed_ends_the_report_and_no_run(monkeypatch):
  stream = _Closed()
  assert _written(stream).count('/50') == 2
  monkeypatch.setattr(progress_lib.sys, 'stderr', None)
  _written(None)


# What TensorFlow logs about the machine does not reach the terminal.


_LINES = """\
I0000 00:00:1795882798.574642   12425 port.cc:153] oneDNN custom operations
E0000 00:00:1795882800.247658   12425 cuda_dnn.cc:8310] Unable to register
I0000 00:00:1795882801.958580   12425 single_machine.cc:361] Starting
E0000 00:00:1795882802.286031   12425 cuda_platform.cc:52] failed call to cuInit
WARNING: All log messages before absl::InitializeLog() is called are written
F0000 00:00:1795882802.286031   12425 port.cc:7] The library needs AVX
E0000 00:00:1795882802.286031   12425 allocator.cc:52] out of memory
W0000 00:00:1795882802.286031   12425 of_the_user.cc:52] a warning
A line that somebody printed.
"""


def _stderr_of(code, **environment):
  inherited = dict(os.environ)
  inherited.pop('TF_CPP_MIN_LOG_LEVEL', None)
  done = subprocess.run(
    [sys.executable, '-c', code],
    capture_output=True,
    text=True,
    env=inherited | environment,
    timeout=200,
  )
  assert done.returncode == 0, done.stderr[-2000:]
  return done.stderr.splitlines()


@pytest.mark.skipif(quiet._HAS_GPU, reason='messages about a GPU are shown')
def test_lines_about_the_machine_are_dropped_and_all_others_passed_on(capfd):
  with quiet.filtered():
    os.write(2, _LINES.encode())
  os.write(2, b'afterwards')
  passed = _LINES.splitlines()[5:]
  assert capfd.readouterr().err.splitlines() == [*passed, 'afterwards']


def test_nothing_is_dropped_at_level_0_or_without_grep(capfd, monkeypatch):
  for change in (
    lambda patch: patch.setenv('TF_CPP_MIN_LOG_LEVEL', '0'),
    lambda patch: patch.setattr(quiet, '_HAS_GPU', True),
    lambda patch: patch.setattr(quiet.shutil, 'which', lambda _: None),
    lambda patch: patch.setattr(quiet.shutil, 'which', lambda _: '/none'),
  ):
    with monkeypatch.context() as patch:
      change(patch)
      with quiet.filtered():
        os.write(2, _LINES.encode())
    assert capfd.readouterr().err == _LINES


@pytest.mark.full
def test_a_process_that_is_aborted_has_its_last_words_shown():
  code = (
    'import os\nfrom tfp_adaptive.driver import quiet\n'
    'if os.fork():\n  os.wait()\n  raise SystemExit\n'
    f'with quiet.filtered():\n  os.write(2, {_LINES.encode()!r})\n  os.abort()'
  )
  assert _LINES.splitlines()[5] in _stderr_of(code)


_RUN = """
import tfp_adaptive as tfpa
import numpy as np
import tensorflow as tf
import tensorflow_probability as tfp
tfd = tfp.distributions

@tfd.JointDistributionCoroutineAutoBatched
def model():
  s = yield tfd.LogNormal(0.0, 1.0, name='s')
  m = yield tfd.Normal(0.0, 1.0, name='m')
  yield tfd.Sample(tfd.Normal(m, s), 4, name='y')

posterior = tfpa.sample_posterior(
  model, y=np.float32([1, 2, 3, 4]), num_draws=100, num_chains=4, min_ess=20,
  max_gradients=5000, progress=False,
)
posterior.posterior_predictive()
posterior.log_likelihood()
"""


@pytest.mark.nightly
@pytest.mark.skipif(quiet._HAS_GPU, reason='messages about a GPU are shown')
def test_a_run_writes_nothing_even_if_tensorflow_was_used_before():
  first = (
    'import sys\nimport tensorflow as tf\n'
    'import tensorflow_probability as tfp\ndir(tfp.mcmc)\ntf.zeros([])\n'
    "print('imported', file=sys.stderr, flush=True)\n"
  )
  assert _stderr_of(_RUN) == []
  lines = _stderr_of(first + _RUN)
  assert lines[-1] == 'imported'
  assert len(lines) > 1  # The negative control: TensorFlow writes lines.


@pytest.mark.nightly
def test_the_level_0_in_the_environment_shows_all():
  lines = _stderr_of('import tfp_adaptive', TF_CPP_MIN_LOG_LEVEL='0')
  # The negative control: there is something to be dropped.
  assert any('oneDNN' in line for line in lines)
  assert _stderr_of('import tfp_adaptive') == []


@pytest.mark.parametrize(
  'module, is_shown', [('tfp_adaptive.driver.blocks', False), ('users', True)]
)
def test_retracing_is_told_of_functions_of_users_alone(module, is_shown):
  records, handler = [], logging.Handler()
  handler.emit = records.append
  said = 'the last 5 calls to %s triggered tf.function retracing'
  call = lambda: tf.get_logger().warning(said, 'f')
  tf.get_logger().addHandler(handler)
  exec('call()', {'__name__': module, 'call': call})  # A frame of the module.
  tf.get_logger().removeHandler(handler)
  assert bool(records) == is_shown
