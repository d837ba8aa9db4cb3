"""The file that a cut off `sample_posterior` goes on from."""

import hashlib
import json
import pathlib
import time
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np

from tfp_adaptive.driver import archive
from tfp_adaptive.posterior import saved
from tfp_adaptive.posterior.posterior import Stage
from tfp_adaptive.posterior.settings import Place

__all__ = ['Kept', 'RunFile']

# Between two files at least, and as multiples of what the last one took: large
# draws are worth much, but not most of the time.
_SECONDS, _TIMES_ITS_OWN = 20.0, 20.0


class Kept(NamedTuple):
  """What an earlier call had, and whether it may spend more than that did."""

  chains: Any
  report: list
  place: Place
  is_richer: bool


class RunFile:
  """`posterior.npz` in a `checkpoint_dir`, or nothing where there is none."""

  def __init__(self, problem, settings):
    """Reads and writes nothing yet.

    Args:
      problem: `problem.Problem`.
      settings: `Settings`.
    """
    self._problem, self._settings = problem, settings
    self._path = self.folder('posterior.npz')
    self._next = time.monotonic() + _SECONDS

  @property
  def is_due(self):
    """Whether the last file is of some time ago."""
    return time.monotonic() > self._next

  def folder(self, name):
    """Returns a path beside the file, or `None`."""
    folder = self._settings.checkpoint_dir
    return pathlib.Path(folder) / name if folder else None

  def budget(self, number):
    """Returns the gradients of which an adaptation has its share.

    One that was cut off goes on as it was planned, with another budget, too.
    """
    plan, state = map(self.folder, _plan_and_state(number))
    if plan is None or not (plan.exists() and state.exists()):
      return self._settings.max_gradients
    return json.loads(plan.read_text())['max_gradients']

  def begin(self, number):
    """Writes of which gradients an adaptation has its share."""
    plan, _ = map(self.folder, _plan_and_state(number))
    if plan is None:
      return
    planned = dict(max_gradients=self.budget(number))
    plan.parent.mkdir(parents=True, exist_ok=True)
    archive.write(plan, json.dumps(planned).encode())

  def write(self, chains, report, place, ended_by):
    """Writes what a call with the same arguments goes on from.

    Args:
      chains: `chains.Chains`.
      report: List of `Stage`, that of sampling so far among them.
      place: `Place`.
      ended_by: What ended the run, or ''.
    """
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
    except OSError as error:  # The draws are worth more than their file.
      warnings.warn(
        f'{self._path} cannot be written ({error.strerror or error}): what is '
        'drawn from now on is lost if the call is cut off. Make room for it.',
        stacklevel=2,
      )
    end = time.monotonic()
    self._next = end + max(_SECONDS, _TIMES_ITS_OWN * (end - begin))

  def read(self):
    """Returns what an earlier call `Kept`, or `None`.

    Raises:
      ValueError: If the file is damaged, or of another run.
    """
    if self._path is None or not self._path.exists():
      return None
    header, arrays = saved.read(self._path)
    saved.check_names(self._path, header, self._problem)
    self._check(header)
    place = Place(*header['place'])
    if isinstance(place.lacking, str):  # Words, in files of before.
      place = place._replace(lacking=float(bool(place.lacking)))
    is_richer = self._settings.max_gradients > header['max_gradients']
    is_done = place.phase == 'done' and not (is_richer and place.lacking)
    chains = saved.restore(
      self._path,
      header,
      arrays,
      self._problem,
      self._settings.progress,
      goes_on=not is_done,
    )
    report = [Stage(*stage) for stage in header['report']]
    return Kept(chains, report, place, is_richer)

  def _identity(self):
    """Returns dict of what a run must share to be gone on with."""
    starts = self._problem.draw_starts(self._settings.num_chains, (0, 0))
    digest = hashlib.sha256(np.asarray(starts).tobytes()).hexdigest()
    return dict(self._settings.identity(), init=digest[:8])

  def _check(self, header):
    """Refuses the file of another run, or of none."""
    if 'run' not in header:
      raise ValueError(
        f'{self._path} was written by `Posterior.save` over the checkpoint. '
        'Move it away to begin anew, or pass another `checkpoint_dir`.'
      )
    other, own = header['run'], self._identity()
    changed = [
      f'`{k}` ({other[k]}, now {own[k]})'
      for k in own
      if other.get(k, own[k]) != own[k]
    ]
    if changed:
      raise ValueError(
        f'{self._path} is of another run: it differs in {", ".join(changed)}. '
        'Pass what was given then, or another `checkpoint_dir`.'
      )


def _plan_and_state(number):
  """Returns names of what an adaptation is of, and of how far it came."""
  return f'adaptation_{number}.json', f'adaptation_{number}/state.npz'
