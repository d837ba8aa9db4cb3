"""Loads packages that are not installed with the library."""

import importlib

__all__ = ['load']


def load(module, user, extra):
  """Returns a module, or refuses with the command that installs it.

  Args:
    module: Name of the module.
    user: Name of the public function that needs the module.
    extra: Extra of the library that installs the module.

  Raises:
    ImportError: If the module cannot be imported.
  """
  try:
    return importlib.import_module(module)
  except ImportError as error:
    raise ImportError(
      f'`tfpa.{user}` needs {module}, which cannot be imported: {error}. Write '
      f"`pip install 'tfp_adaptive[{extra}]'`."
    ) from error
