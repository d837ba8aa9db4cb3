"""Loads packages that are not installed with the library."""

import importlib


def load(module, user, extra):
  """Returns a module, or refuses with the command that installs it.

  `user` is the public function that needs the module.
  """
  try:
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f'`tfpa.{user}` needs {module}, which cannot be imported: {error}. Write '
      f"`pip install 'tfp_adaptive[{extra}]'`."
    ) from error
