"""An entry is one decorated class; nothing else lists it."""

import pytest
from pydantic import Field

from experiments.run.errors import ConfigError
from experiments.targets.registry import Parameters
from experiments.targets.registry import Registry


def _registry():
  registry = Registry('thing')

  @registry.register('circle')
  class Circle(Parameters):
    """A round thing."""

    radius: float = Field(gt=0)

  del Circle
  return registry


def test_one_decorator_enters_a_name_with_its_parameters():
  registry = _registry()
  assert registry.names() == ['circle']
  assert list(registry.parameters('circle')) == ['radius']


def test_unknown_and_refused_names_say_why():
  registry = _registry()
  registry.refuse('ellipse', 'it needs a download.')
  with pytest.raises(ConfigError, match="did you mean 'circle'"):
    registry.check_name('circel', 'target.name')
  with pytest.raises(ConfigError, match='needs a download'):
    registry.check_name('ellipse', 'target.name')
