"""Every public name is documented, typed, on the site and under contract.

Ruff and pyright hold what one file can show; here are the rules that compare
the public names with something else.
"""

import importlib
import inspect
import pathlib
import re
import typing

import pytest

import tfp_adaptive as tfpa
from experiments.samplers import baselines
from experiments.samplers import cases
from tests.contracts import registry

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


def test_entries_of_the_api_name_the_object_that_their_heading_says():
  entries = re.findall(r'::: (\S+)\n    options:\n      heading: (\S+)', _API)
  assert len(entries) == _API.count(':::')
  public = dict(_public())
  for path, heading in entries:
    module, _, name = path.rpartition('.')
    value = getattr(importlib.import_module(module), name)
    assert value is public[heading.removeprefix('tfpa.')]


@pytest.mark.parametrize('page', ['README.md', 'CONTRIBUTING.md'])
def test_links_of_pages_outside_the_site_lead_to_files(page):
  links = re.findall(r'\]\((?!\w+:)([^)#\s]+)', (_ROOT / page).read_text())
  assert links
  assert not [link for link in links if not (_ROOT / link).is_file()]


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


def test_every_public_part_is_in_the_contract_tests():
  # The contract tests go through `__all__`; here `__all__` is compared with
  # the files, each of which has one factory of its own name.
  for catalogue, names in (
    (tfpa.preconditioners, registry.PRECONDITIONERS),
    (tfpa.criteria, registry.CRITERIA),
  ):
    folder = pathlib.Path(catalogue.__file__).parent
    modules = {path.stem: path.read_text() for path in folder.glob('*.py')}
    factories = {n for n, text in modules.items() if f'\ndef {n}(' in text}
    assert factories == set(names)
  assert registry.OPTIMIZERS == tuple(tfpa.optimizers.__all__)
