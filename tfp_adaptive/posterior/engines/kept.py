"""A base class for objects whose state is written to a checkpoint."""

import numpy as np


class Kept:
  """An object whose state can be turned into arrays and back.

  `fields` names the attributes that are the state: arrays, numbers, or `Kept`
  objects.
  """

  fields = ()

  def to_arrays(self, prefix=''):
    """Returns dict of name -> array."""
    found = {}
    for name in self.fields:
      value = getattr(self, name)
      if isinstance(value, Kept):
        found.update(value.to_arrays(f'{prefix}{name}.'))
      else:
        found[prefix + name] = np.array(value)
    return found

  def load_arrays(self, arrays, prefix=''):
    """Restores the state that `to_arrays` returned."""
    for name in self.fields:
      value = getattr(self, name)
      if isinstance(value, Kept):
        value.load_arrays(arrays, f'{prefix}{name}.')
      else:
        array = arrays[prefix + name]
        setattr(self, name, array.item() if array.ndim == 0 else array)
