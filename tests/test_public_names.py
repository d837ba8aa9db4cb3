"""Every public name is documented, typed, on the site and under contract.

Ruff and pyright hold what one file can show; here are the rules that compare
the public names with something else.
"""

import inspect
import pathlib
import re
import typing

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers import cases

_ROOT = pathlib.Path(tfpa.__file__).resolve().parents[1]
_API = '\n'.join(page.read_text() for page in _ROOT.glob('docs/api/*.md'))


def _public():
  """Yields (name, object) for all public names, also those of catalogues."""
  for name in tfpa.__all__:
    value = getattr(tfpa, name)
    if inspect.ismodule(value):
      yield from ((f'{name}.{n}', getattr(value, n)) for n in value.__all__)
    elif not isinstance(value, str):
      yield name, value


def _is_called_by_users(value):
  """Whether it runs kernels, or says what came out: not a builder or a part."""
  places = ('tfp_adaptive.driver', 'tfp_adaptive.posterior')
  module = getattr(value, '__module__', '')
  return module == 'tfp_adaptive.learned' or module.startswith(places)


def _typed():
  """Yields (name, function) of the driver and the front door, with methods."""
  for name, value in _public():
    if not _is_called_by_users(value):
      continue
    if inspect.isfunction(value):
      yield name, value
    for member, inner in vars(value).items() if inspect.isclass(value) else ():
      inner = inner.fget if isinstance(inner, property) else inner
      if inspect.isfunction(inner) and not member.startswith('_'):
        yield f'{name}.{member}', inner


def _untyped(function):
  hints = typing.get_type_hints(function)
  asked = [n for n in inspect.signature(function).parameters if n != 'self']
  return [name for name in [*asked, 'return'] if name not in hints]


def test_the_driver_and_the_front_door_are_typed():
  functions = dict(_typed())
  assert {'sample_posterior', 'sample', 'Posterior.more'} <= set(functions)
  assert not {n: _untyped(f) for n, f in functions.items() if _untyped(f)}


def test_every_public_name_has_an_entry_in_the_api():
  shown = set(re.findall(r'heading: tfpa\.(\S+)', _API))
  assert shown == {name for name, _ in _public()}


def _builders():
  """Yields the names of all functions that make a kernel of a density."""
  for module in (tfpa, baselines):
    for name in module.__all__:
      value = getattr(module, name)
      if inspect.isfunction(value):
        first = next(iter(inspect.signature(value).parameters))
        if first in ('target_log_prob_fn', 'log_likelihood_fn'):
          yield name


def test_every_builder_has_a_case_that_meets_the_contracts():
  met = {c.builder.__name__ for c in cases.CASES if c.group != 'calibration'}
  assert met == set(_builders())
  names = [case.name for case in cases.CASES]
  assert len(set(names)) == len(names)
