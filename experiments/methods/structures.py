"""What a config says about the structure of a learned scale factor."""

from typing import Literal

from pydantic import Field

import tfp_adaptive as tfpa
from experiments.methods.base import MethodParameters

__all__ = ['MAX_DENSE_EVENT_SIZE', 'Structured', 'check_dense']

# A dense factor of this size costs 36 MB in float32 and d^2 work a step.
MAX_DENSE_EVENT_SIZE = 3000

# The one constant that a structure takes beside its scales.
_CONSTANTS = {
  'arrow': 'num_globals',
  'banded': 'num_superdiagonals',
  'low_rank': 'rank',
}


class Structured(MethodParameters):
  """The structure, by its name in `tfpa.preconditioners`."""

  preconditioner: Literal[
    'arrow', 'banded', 'cholesky', 'diagonal', 'low_rank', 'tridiagonal'
  ] = 'cholesky'
  num_globals: int | None = Field(
    None, ge=1, description='arrow: last coordinates, coupled to all'
  )
  num_superdiagonals: int | None = Field(
    None, ge=1, description='banded: of the inverse factor'
  )
  globals_first: bool = Field(
    False, description='arrow: the globals are the first coordinates'
  )
  rank: int | None = Field(
    None, ge=1, description='low_rank: beside a diagonal'
  )
  init_scale: float | None = Field(None, gt=0)

  def structure(self, target, is_paper):
    """Returns the preconditioner, or None where the library's own is meant.

    Args:
      target: the `Target`.
      is_paper: whether the first scale is 0.1 / sqrt(event_size).
    """
    named = self._named_constants(target)
    self._check_structure(target, named)
    if self.preconditioner == 'cholesky' and self.init_scale is None:
      return None
    constants = dict(named)
    if is_paper:
      constants['init_scale'] = 0.1 * target.event_size**-0.5
      constants['min_scale'] = 1e-3
    if self.init_scale is not None:
      constants['init_scale'] = self.init_scale
    name = _CONSTANTS.get(self.preconditioner)
    if name is not None and getattr(self, name) is not None:
      constants[name] = getattr(self, name)
      if self.preconditioner == 'arrow':
        constants['globals_first'] = self.globals_first
    return getattr(tfpa.preconditioners, self.preconditioner)(**constants)

  def structure_label(self):
    """Returns ', arrow' and the like; nothing for the dense factor."""
    if self.preconditioner == 'cholesky':
      return ''
    return f', {self.preconditioner.replace("_", " ")}'

  def _named_constants(self, target):
    """Returns the constants of the structure that the target names, or {}."""
    own = _CONSTANTS.get(self.preconditioner)
    if own is None or getattr(self, own) is not None:
      return {}
    return (target.structures or {}).get(self.preconditioner, {})

  def _check_structure(self, target, named):
    check_dense(self.preconditioner, target)
    for owner, name in _CONSTANTS.items():
      is_given = getattr(self, name) is not None
      if owner == self.preconditioner and not is_given and not named:
        raise ValueError(
          f'preconditioner: {owner!r} needs its {name}, and {target.name} '
          f'names none; write its number, as in {name}: 3, or preconditioner: '
          'diagonal.'
        )
      if owner != self.preconditioner and is_given:
        raise ValueError(
          f'{name}: it belongs to preconditioner: {owner}, but that is '
          f'{self.preconditioner!r}; leave it out.'
        )
    if self.globals_first and self.num_globals is None:
      raise ValueError(
        'globals_first: it belongs to num_globals, which is not given; write '
        'preconditioner: arrow and num_globals: 3, or leave it out.'
      )
    if not hasattr(tfpa.preconditioners, self.preconditioner):
      raise ValueError(
        f'preconditioner: tfp_adaptive has no {self.preconditioner!r}; it has '
        f'{", ".join(tfpa.preconditioners.__all__)}.'
      )


def check_dense(preconditioner, target):
  """Refuses a dense factor that would not fit."""
  if preconditioner == 'cholesky' and target.event_size > MAX_DENSE_EVENT_SIZE:
    raise ValueError(
      f'preconditioner: {preconditioner!r} holds {target.event_size}^2 numbers '
      f'for {target.name}; allowed are at most {MAX_DENSE_EVENT_SIZE}^2. Write '
      'preconditioner: diagonal.'
    )
