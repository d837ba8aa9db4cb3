"""What TensorFlow logs about the machine does not reach the terminal."""

import logging
import os
import subprocess
import sys

import pytest
import tensorflow as tf

from tfp_adaptive.driver import quiet

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
  max_gradients=5000, progress={progress},
)
posterior.posterior_predictive()
posterior.log_likelihood()
"""


@pytest.mark.nightly
@pytest.mark.skipif(quiet._HAS_GPU, reason='messages about a GPU are shown')
def test_a_run_without_progress_writes_nothing():
  assert _stderr_of(_RUN.format(progress=False)) == []


@pytest.mark.nightly
@pytest.mark.skipif(quiet._HAS_GPU, reason='messages about a GPU are shown')
def test_nor_does_it_if_tensorflow_was_imported_and_used_first():
  first = (
    'import sys\nimport tensorflow as tf\n'
    'import tensorflow_probability as tfp\ndir(tfp.mcmc)\ntf.zeros([])\n'
    "print('imported', file=sys.stderr, flush=True)\n"
  )
  lines = _stderr_of(first + _RUN.format(progress=False))
  assert lines[-1] == 'imported'
  assert len(lines) > 1  # The negative control: TensorFlow writes lines.


@pytest.mark.nightly
def test_the_level_0_in_the_environment_shows_all():
  lines = _stderr_of('import tfp_adaptive', TF_CPP_MIN_LOG_LEVEL='0')
  # The negative control: there is something to be dropped.
  assert any('oneDNN' in line for line in lines)
  assert _stderr_of('import tfp_adaptive') == []


_RETRACING = '5 out of the last 5 calls to %s triggered tf.function retracing'


@pytest.mark.parametrize(
  'module, message, is_shown',
  [
    ('tfp_adaptive.driver.blocks', _RETRACING, False),
    ('tfp_adaptive.posterior.model.data', 'Gradients of %s do not exist', True),
    ('of_a_user', _RETRACING, True),
    ('tfp_adaptive_models', _RETRACING, True),
  ],
)
def test_retracing_is_told_of_functions_of_users_alone(
  module, message, is_shown
):
  records = []
  handler = logging.Handler()
  handler.emit = records.append
  tf.get_logger().addHandler(handler)
  call = lambda: tf.get_logger().warning(message, 'f')
  try:  # From a frame that belongs to the module.
    exec('call()', {'__name__': module, 'call': call})
  finally:
    tf.get_logger().removeHandler(handler)
  assert bool(records) == is_shown
