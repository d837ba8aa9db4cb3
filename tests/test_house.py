"""The library's functions are short, its names documented and tested.

One item for each rule; its message lists every place that breaks it.
"""

import ast
import functools
import inspect
import pathlib

import tfp_adaptive as tfpa
from experiments import baselines
from tests.contracts import registry

_FILES = sorted(pathlib.Path(tfpa.__file__).parent.rglob('*.py'))
_MAX_FUNCTION_LINES = 60


@functools.cache
def _tree(path):
  return ast.parse(path.read_text())


def test_nothing_mutable_survives_a_call():
  found = []
  for path in _FILES:
    for node in ast.walk(_tree(path)):
      if isinstance(node, ast.Attribute) and node.attr == 'Variable':
        found.append(f'{path}:{node.lineno}: tf.Variable')
      if isinstance(node, ast.Global):
        found.append(f'{path}:{node.lineno}: global')
  assert not found


def _num_code_lines(node, lines):
  """Returns the lines of a function without docstring, blanks, comments."""
  body = node.body[1:] if ast.get_docstring(node) else node.body
  if not body:
    return 0
  source = lines[body[0].lineno - 1 : body[-1].end_lineno]
  return sum(
    bool(line.strip()) and not line.strip().startswith('#') for line in source
  )


def test_functions_are_short():
  found = {}
  for path in _FILES:
    lines = path.read_text().splitlines()
    for node in ast.walk(_tree(path)):
      if isinstance(node, ast.FunctionDef):
        length = _num_code_lines(node, lines)
        if length > _MAX_FUNCTION_LINES:
          found[f'{path}: {node.name}'] = length
  assert not found


def _is_assignment_of_all(node):
  return isinstance(node, ast.Assign) and any(
    getattr(target, 'id', None) == '__all__' for target in node.targets
  )


def test_every_module_says_what_it_is():
  assert not [path for path in _FILES if not ast.get_docstring(_tree(path))]


def test_every_module_says_what_it_exports():
  # A folder whose `__init__.py` is a docstring alone exports nothing.
  assert not [
    path
    for path in _FILES
    if len(_tree(path).body) > 1
    and path.name != '_version.py'
    and sum(map(_is_assignment_of_all, _tree(path).body)) != 1
  ]


def _public():
  """Yields (name, object) of everything a user calls."""
  for name in tfpa.__all__:
    value = getattr(tfpa, name)
    if isinstance(value, str):
      continue
    if inspect.ismodule(value):
      if value.__name__.endswith('interfaces'):
        continue
      for inner in value.__all__:
        yield f'{name}.{inner}', getattr(value, inner)
    else:
      yield name, value


def _undocumented(name, value):
  """Yields what the docstring of a public name leaves out."""
  documented = inspect.getdoc(value)
  if not documented:
    yield f'{name} has no docstring'
    return
  first = documented.splitlines()[0]
  if not first.endswith('.') and ':' not in first:
    yield f'{name}: the first line is no sentence'
  function = value
  if inspect.isclass(value):
    if hasattr(value, '_fields'):
      if 'Attributes:' not in documented:
        yield f'{name} does not document its fields'
      return
    function = value.__dict__.get('__init__')
    if function is None:
      return  # The base class documents the arguments.
    documented = inspect.getdoc(function)
  elif 'Returns:' not in documented and not first.startswith('Returns '):
    yield f'{name} does not say what it returns'
  if 'Args:' not in documented:
    yield f'{name} does not document its arguments'
  for argument in inspect.signature(function).parameters:
    if argument != 'self' and f'{argument}:' not in documented:
      yield f'{name}: {argument} undocumented'


def test_public_names_document_their_arguments_and_results():
  assert not [
    line for name, value in _public() for line in _undocumented(name, value)
  ]


def test_all_lists_names_that_exist():
  missing = [name for name in tfpa.__all__ if not hasattr(tfpa, name)]
  for name in set(tfpa.__all__) - set(missing):
    value = getattr(tfpa, name)
    if inspect.ismodule(value):
      missing += [n for n in value.__all__ if not hasattr(value, n)]
  assert not missing


def test_every_public_part_is_in_the_contract_tests():
  # The contract tests run over `__all__`; here `__all__` over the files.
  listed = {
    tfpa.preconditioners: registry.PRECONDITIONERS,
    tfpa.criteria: registry.CRITERIA,
  }
  for catalogue, names in listed.items():
    folder = pathlib.Path(catalogue.__file__).parent
    factories = {
      node.name
      for path in folder.glob('*.py')
      for node in _tree(path).body
      if isinstance(node, ast.FunctionDef) and node.name == path.stem
    }
    assert factories == set(names), f'{folder}: one file, one name per part'
  assert registry.OPTIMIZERS == tuple(tfpa.optimizers.__all__)


def _builders(family):
  """Returns the public functions of a family: what builds a sampler."""
  return {
    name
    for name in tfpa.__all__
    if inspect.isfunction(getattr(tfpa, name))
    and getattr(tfpa, name).__module__.startswith(f'tfp_adaptive.{family}.')
  }


def test_every_builder_is_in_the_contract_tests():
  registered = {case.builder.__name__ for case in registry.KERNELS}
  public = _builders('linear')
  assert public <= registered & set(tfpa.__all__)
  assert registered - public <= set(baselines.__all__)
