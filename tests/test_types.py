"""Types of the front door and the driver, and the package's word for them."""

import inspect
import pathlib
import typing

import pytest
import tomllib
import yaml

import tfp_adaptive as tfpa

_ROOT = pathlib.Path(tfpa.__file__).resolve().parent.parent
_CONFIG = tomllib.loads((_ROOT / 'pyproject.toml').read_text())
_PROJECT = _CONFIG['project']
# Who calls a run, and who asks what came of it. Builders of kernels take
# callables and parts, which no type tells apart: their docstrings do.
_PLACES = ('tfp_adaptive.driver', 'tfp_adaptive.posterior')


def _is_driver(value):
  name = getattr(value, '__module__', '')
  return name == 'tfp_adaptive.learned' or name.startswith(_PLACES)


def _functions():
  """Yields (name, function) of all that is called, methods among it."""
  for name in tfpa.__all__:
    value = getattr(tfpa, name)
    if not _is_driver(value):
      continue
    if not inspect.isclass(value):
      yield name, value
      continue
    for member, inner in vars(value).items():
      inner = inner.fget if isinstance(inner, property) else inner
      if inspect.isfunction(inner) and not member.startswith('_'):
        yield f'{name}.{member}', inner


FUNCTIONS = dict(_functions())


def _untyped(function):
  """Returns the arguments of a function without a hint, its result too."""
  hints = typing.get_type_hints(function)
  asked = [n for n in inspect.signature(function).parameters if n != 'self']
  return [name for name in [*asked, 'return'] if name not in hints]


@pytest.mark.parametrize('name', FUNCTIONS)
def test_every_function_of_the_front_door_and_the_driver_is_typed(name):
  assert not _untyped(FUNCTIONS[name])


def test_those_are_the_ones_that_users_call():
  assert {
    'sample_posterior',
    'load_posterior',
    'sample',
    'cache_compilations',
    'frozen',
    'as_tfp_kernel',
    'learned_covariance',
    'learned_factor',
    'cost_per_step',
    'Posterior.more',
    'Posterior.save',
    'Posterior.converged',
    'SampleResult.to_arviz',
  } <= set(FUNCTIONS)


def test_an_argument_without_a_hint_is_seen():
  def function(first: int, second=0) -> str:
    return str(first + second)

  assert _untyped(function) == ['second']


def test_the_wheel_says_that_it_is_typed():
  # That the wheel has the file is looked at where one is built, in .ci/run.
  assert (_ROOT / 'tfp_adaptive' / 'py.typed').is_file()
  data = _CONFIG['tool']['setuptools']['package-data']
  assert data['tfp_adaptive'] == ['py.typed']


def test_the_package_has_the_authors_and_the_license_of_its_citation():
  citation = yaml.safe_load((_ROOT / 'CITATION.cff').read_text())
  assert _PROJECT['authors'] == citation['authors']
  assert _PROJECT['license'] == citation['license']
  versions = [c.rpartition(' ')[2] for c in _PROJECT['classifiers']]
  assert {v for v in versions if v[:2] == '3.'} == {
    f'3.{minor}' for minor in range(10, 14)
  }
  assert _PROJECT['requires-python'] == '>=3.10,<3.14'
