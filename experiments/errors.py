"""The errors a user can mend, told apart from bugs."""

import difflib

__all__ = [
  'ConfigError',
  'DataError',
  'DeviceError',
  'StorageError',
  'did_you_mean',
]


class ConfigError(ValueError):
  """A config that is refused; the message names key and value."""


class DataError(RuntimeError):
  """A data set that cannot be found, fetched or read."""


class DeviceError(RuntimeError):
  """A device that was asked for and is not there."""


class StorageError(RuntimeError):
  """A folder of results that is in use or cannot be written."""


def did_you_mean(name, allowed):
  """Returns ` (did you mean 'x'?)` for a near miss, else ''."""
  lower = {str(candidate).lower(): candidate for candidate in allowed}
  close = difflib.get_close_matches(str(name).lower(), lower, n=3, cutoff=0.6)
  if not close:
    return ''
  return f' (did you mean {" or ".join(repr(lower[c]) for c in close)}?)'
