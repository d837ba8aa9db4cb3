"""The file from which `sample_posterior` resumes a call that was cut off."""

import contextlib
import hashlib
import pathlib
import time
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tfp_adaptive.core import run_warnings
from tfp_adaptive.driver import archive
from tfp_adaptive.driver import checkpoint
from tfp_adaptive.driver import probe
from tfp_adaptive.driver import progress
from tfp_adaptive.driver import run_identity
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.plan import Place
from tfp_adaptive.posterior.posterior import Stage

# Least time between two files: in seconds, and in multiples of the time that
# the last file took.
_SECONDS, _TIMES_ITS_OWN = 20.0, 20.0


class Kept(NamedTuple):
  """What an earlier call left, and whether this call has a larger budget."""

  chains: Any
  report: list
  place: Place
  is_richer: bool


class RunFile:
  """`posterior.npz` in a `checkpoint_dir`; does nothing without a folder."""

  def __init__(self, problem, settings):
    """Traces the density of a `Problem`; reads and writes no file yet."""
    self._problem, self._settings = problem, settings
    self._path = self.folder('posterior.npz')
    self._next = time.monotonic() + _SECONDS
    if self._path is not None:
      # A density may trace differently each time, for example if its Python
      # code counts its calls. Every call of `sample_posterior` therefore traces
      # it before all else. The first stage explains errors.
      with contextlib.suppress(Exception):
        saved.traced(problem, settings.num_chains)

  @property
  def is_due(self):
    """Whether it is time to write the next file."""
    return time.monotonic() > self._next

  def folder(self, name):
    """Returns a path in `checkpoint_dir`, or `None` without a folder."""
    folder = self._settings.checkpoint_dir
    return pathlib.Path(folder) / name if folder else None

  def budget(self, number):
    """Returns the `max_gradients` of which an adaptation takes its share.

    An adaptation that was cut off keeps the budget with which it began, even if
    the present budget differs.
    """
    plan, state = map(self.folder, _plan_and_state(number))
    if plan is None or not (plan.exists() and state.exists()):
      return self._settings.max_gradients
    try:
      return float(archive.unseal(plan)[0]['max_gradients'])
    except archive.Damaged as error:
      raise checkpoint.damaged(plan, error) from error

  def begin(self, number):
    """Writes the budget of which an adaptation takes its share."""
    plan, _ = map(self.folder, _plan_and_state(number))
    if plan is None:
      return
    planned = dict(max_gradients=self.budget(number))
    with checkpoint.writing(plan):
      plan.parent.mkdir(parents=True, exist_ok=True)
      archive.write(plan, archive.seal(planned, {}))

  def identity_of_stage(self, choice, num_steps, starts):
    """Returns what `run_identity` compares before an adaptation is resumed."""
    starts = np.asarray(starts, self._problem.dtype.as_numpy_dtype)
    density = saved.traced(self._problem, len(starts))
    points = probe.points(tf.constant(starts))
    return dict(
      self._settings.identity(),
      structure=choice.name,
      drivers=[int(driver) for driver in choice.drivers],
      exponents=[float(exponent) for exponent in choice.exponents],
      target_accept_prob=float(choice.target_accept_prob),
      num_steps=int(num_steps),
      versions=run_identity.versions(),
      start=hashlib.sha256(starts.tobytes()).hexdigest(),
      settings={},
      start_program=None,
      step_program=dict(digest=density.program),
      python_code=density.code,
      readings=probe.read(density.evaluate, points),
    )

  def write(self, chains, report, place, ended_by):
    """Writes the file; `report` includes the unfinished stage 'sample'."""
    if self._path is None:
      return
    begin = time.monotonic()
    if not ended_by and place.phase != 'done':
      ended_by = 'an interruption'
    try:
      saved.write(
        self._path,
        self._problem,
        chains,
        report=report,
        min_ess=self._settings.min_ess,
        ended_by=ended_by,
        place=place,
        run=self._identity(),
        max_gradients=self._settings.max_gradients,
      )
    except Exception as error:  # Keep the draws, even without a file.
      progress.log_failure(f'{self._path} cannot be written.')
      is_disk = isinstance(error, OSError)
      reason = (is_disk and error.strerror) or message_of(error)
      advice = ' Make room for the file.' if is_disk else ''
      run_warnings.warn(
        f'{self._path} cannot be written ({reason}). Draws made from now on '
        f'are lost if the call is cut off.{advice}'
      )
    end = time.monotonic()
    self._next = end + max(_SECONDS, _TIMES_ITS_OWN * (end - begin))

  def read(self):
    """Returns the `Kept` of an earlier call, or `None`; refuses other runs."""
    if self._path is None or not self._path.exists():
      return None
    header, arrays = saved.read(self._path)
    saved.check_names(self._path, header, self._problem)
    self._check(header)
    place = Place(*header['place'])
    is_richer = self._settings.max_gradients > header['max_gradients']
    chains = saved.restore(
      self._path, header, arrays, self._problem, self._settings.reports
    )
    report = [Stage(*stage) for stage in header['report']]
    return Kept(chains, report, place, is_richer)

  def _identity(self):
    """Returns values that must be equal for two calls to be one run."""
    starts = self._problem.draw_starts(self._settings.num_chains, (0, 0))
    digest = hashlib.sha256(np.asarray(starts).tobytes()).hexdigest()
    return dict(self._settings.identity(), init=digest[:8])

  def _check(self, header):
    """Refuses the file of another run, and a file that is no checkpoint."""
    if 'run' not in header:
      raise ValueError(
        f'{self._path} was written by `Posterior.save`, over the checkpoint. '
        'Move it away to start again, or pass another `checkpoint_dir`.'
      )
    other, own = header['run'], self._identity()
    changed = [
      f'`{k}` ({other[k]}, now {own[k]})' for k in own if other[k] != own[k]
    ]
    if changed:
      raise ValueError(
        f'{self._path} belongs to another run: it differs in '
        f'{", ".join(changed)}. Pass the arguments of that run, or another '
        '`checkpoint_dir`.'
      )


def _plan_and_state(number):
  """Returns the files with the budget and with the state of an adaptation."""
  return f'adaptation_{number}.npz', f'adaptation_{number}/state.npz'


def message_of(error):
  """Returns the message of an error in one line."""
  is_tf = isinstance(error, tf.errors.OpError)
  text = str(error.message if is_tf else error) or type(error).__name__
  return ' '.join(text.split())[:300]
