"""Errors that a user can correct, and how their messages look.

The command line shows these errors as one message, without a traceback.
"""

import difflib
import reprlib

import pydantic

_MAX_SHOWN = 80
_MAX_LISTED = 200
# Longer words are not misspelled names, and comparing them is slow.
_MAX_MISSPELLED = 100
# Most characters of a message that lists several mistakes.
_MAX_LENGTH = 560


class ConfigError(ValueError):
  """A config or an option that is refused; the message names both values."""


class Refused(ValueError):
  """A case that a method does not take, which is not a failure."""


class DataError(RuntimeError):
  """A data set that cannot be found, fetched or read."""


class DeviceError(RuntimeError):
  """A requested device that does not exist."""


class StorageError(RuntimeError):
  """A folder of results that is in use or cannot be written."""


# The command line shows these errors as a message.
USER_ERRORS = (ConfigError, DataError, DeviceError, StorageError)


def did_you_mean(name, allowed):
  """Returns ` (did you mean 'x'?)` for a near miss, else ''."""
  lower = {str(candidate).lower(): candidate for candidate in allowed}
  name = str(name).lower()[:_MAX_MISSPELLED]
  close = difflib.get_close_matches(name, lower, n=2, cutoff=0.6)
  if not close:
    return ''
  return f' (did you mean {" or ".join(shown(lower[c]) for c in close)}?)'


def shortened(text, most=_MAX_SHOWN):
  """Returns a text on one line; a long text loses its middle."""
  text = ' '.join(str(text).split())
  if len(text) <= most:
    return text
  half = (most - 3) // 2
  return f'{text[:half]}...{text[-half:]}'


def shown(value, most=_MAX_SHOWN):
  """Returns the shortened `repr` of a given value, for a message."""
  return shortened(_short.repr(value), most)


def listed(names, most=_MAX_LISTED):
  """Returns names with commas between; of many names, only the first."""
  names = list(map(str, names))
  kept = []
  for name in names:
    if kept and len(', '.join([*kept, name])) > most:
      return f'{", ".join(kept)} and {len(names) - len(kept)} more'
    kept.append(shortened(name))
  return ', '.join(kept)


def validated(model, values, locate):
  """Returns the pydantic model of nested dicts and lists.

  Args:
    locate: Function of pydantic's location. It returns the path that a user
      would write, and the keys that are allowed there.

  Raises:
    ConfigError: If anything is wrong, with a line for each mistake.
  """
  try:
    return model.model_validate(values)
  except pydantic.ValidationError as error:
    raise ConfigError(_mistakes(error, locate)) from error


def _mistakes(error, locate):
  found = error.errors(include_url=False, include_context=False)
  lines = []
  for details in found:
    line = _explained(details, *locate(list(details['loc'])))
    if lines and len('\n'.join([*lines, line])) > _MAX_LENGTH:
      lines.append(f'and {len(found) - len(lines)} more.')
      break
    lines.append(line)
  return '\n'.join(lines)


def _explained(details, location, allowed):
  where = shortened('.'.join(map(str, location)))
  if details['type'] == 'extra_forbidden':
    hint = did_you_mean(location[-1], allowed)
    return (
      f'{where}: unknown key (value {shown(details["input"])}){hint}; allowed '
      f'are {listed(sorted(allowed)) or "none"}.'
    )
  if details['type'] == 'missing':
    return f'{where}: this key is required.'
  message = details['msg'][0].lower() + details['msg'][1:]
  return f'{where}: {shown(details["input"])}: {shortened(message, 160)}.'


_short = reprlib.Repr()
_short.maxlevel = 3
_short.maxstring = _short.maxother = 2 * _MAX_SHOWN
