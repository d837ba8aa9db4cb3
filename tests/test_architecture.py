"""The shape of the library: who imports whom, how long, how documented."""

import ast
import functools
import inspect
import pathlib
import sys

import pytest

import tfp_adaptive as tfpa
from tests.contracts import registry

_ROOT = pathlib.Path(tfpa.__file__).parent
_FILES = sorted(_ROOT.rglob('*.py'))
_NAMES = [str(path.relative_to(_ROOT)) for path in _FILES]
_TOP = ('numpy', 'tensorflow', 'tensorflow_probability')
_FORBIDDEN = (
  'experiments',
  'yaml',
  'pydantic',
  'matplotlib',
  'arviz',
  'arviz_base',
  'arviz_stats',
  'inference_gym',
)
# Concepts: folders, and modules that stand for one.
_CONCEPTS = sorted(
  {path.parent.name for path in _FILES if path.parent != _ROOT} - {'internal'}
) + ['optimizers']
# What may see several concepts.
_COMPOSERS = (
  '__init__',
  'prefab',
  'prefab_fisher',
  'prefab_hyperparameters',
  'prefab_latent',
  'prefab_surrogate',
  'prefab_transport',
  'sampling',
  'learned',
)
_MAX_FILE_LINES = 400
_MAX_FUNCTION_LINES = 60

each_file = pytest.mark.parametrize('path', _FILES, ids=_NAMES)


@functools.cache
def _tree(path):
  return ast.parse(path.read_text())


def _imports(path):
  """Returns (dotted module, whether inside a function) of every import."""
  found = []

  def visit(node, inside):
    inside = inside or isinstance(node, ast.FunctionDef)
    if isinstance(node, ast.Import):
      found.extend((alias.name, inside) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}: relative import'
      found.extend(
        (f'{node.module}.{alias.name}', inside) for alias in node.names
      )
    for child in ast.iter_child_nodes(node):
      visit(child, inside)

  visit(_tree(path), False)
  return found


def _library_parts(module):
  return module.split('.')[1:] if module.startswith('tfp_adaptive.') else None


def _place(path):
  """Returns the concept, `internal`, or the name of a top-level module."""
  relative = path.relative_to(_ROOT)
  return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@each_file
def test_only_tensorflow_numpy_and_the_standard_library_are_imported(path):
  for module, inside_function in _imports(path):
    top = module.split('.')[0]
    assert top not in _FORBIDDEN, f'{path} imports {module}'
    if top == 'rich':
      assert _place(path) == 'internal' and path.stem == 'progress'
      assert inside_function, 'rich is optional: import it in a function'
      continue
    assert (
      top in _TOP or top == 'tfp_adaptive' or top in sys.stdlib_module_names
    ), f'{path} imports {module}'


@each_file
def test_private_modules_of_tfp_are_imported_in_one_file_only(path):
  private = [
    module
    for module, _ in _imports(path)
    if module.startswith('tensorflow_probability.python')
    or module.startswith('tensorflow.python')
  ]
  assert not private or path.name == 'tfp_private.py'
  if path.name != 'tfp_private.py':
    source = path.read_text()
    assert 'tensorflow_probability.python' not in source
    assert 'tfp.python' not in source and 'tf.python' not in source


@each_file
def test_a_folder_imports_interfaces_and_internal_and_no_sibling(path):
  place = _place(path)
  if place in _COMPOSERS:
    assert path.parent == _ROOT
    return
  allowed = {'interfaces', 'internal'}
  if place in _CONCEPTS:
    allowed.add(place)
  if place == 'interfaces':
    allowed = set()
  for module, _ in _imports(path):
    parts = _library_parts(module)
    if parts:
      assert parts[0] in allowed, f'{path} imports {module}'


@each_file
def test_nothing_mutable_survives_a_call(path):
  for node in ast.walk(_tree(path)):
    if isinstance(node, ast.Attribute):
      assert node.attr != 'Variable', f'{path}:{node.lineno}: tf.Variable'
    assert not isinstance(node, ast.Global), f'{path}:{node.lineno}: global'


@each_file
def test_files_and_functions_are_short(path):
  lines = path.read_text().splitlines()
  assert len(lines) <= _MAX_FILE_LINES
  for node in ast.walk(_tree(path)):
    if isinstance(node, ast.FunctionDef):
      body = node.body
      if ast.get_docstring(node):
        body = body[1:]
      if not body:
        continue
      source = lines[body[0].lineno - 1 : body[-1].end_lineno]
      length = sum(
        bool(line.strip()) and not line.strip().startswith('#')
        for line in source
      )
      assert length <= _MAX_FUNCTION_LINES, (
        f'{path}: {node.name} has {length} lines of code'
      )


@each_file
def test_every_module_says_what_it_is_and_what_it_exports(path):
  if path.parent.name == 'internal' and path.name == '__init__.py':
    assert not path.read_text().strip()
    return
  tree = _tree(path)
  assert ast.get_docstring(tree), f'{path} has no docstring'
  if path.name == '_version.py':
    return
  exported = [
    node
    for node in tree.body
    if isinstance(node, ast.Assign)
    and any(getattr(t, 'id', None) == '__all__' for t in node.targets)
  ]
  assert len(exported) == 1, f'{path} has no explicit __all__'


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


@pytest.mark.parametrize(
  'name, value', _public(), ids=[n for n, _ in _public()]
)
def test_public_names_document_their_arguments_and_results(name, value):
  documented = inspect.getdoc(value)
  assert documented, f'{name} has no docstring'
  first = documented.splitlines()[0]
  assert first.endswith('.') or ':' in first
  if inspect.isclass(value):
    if hasattr(value, '_fields'):
      assert 'Attributes:' in documented
      return
    constructor = value.__dict__.get('__init__')
    if constructor is not None:
      documented = inspect.getdoc(constructor)
    else:
      return  # The base class documents the arguments.
    function = constructor
  else:
    function = value
    assert 'Returns:' in documented or first.startswith('Returns '), (
      f'{name} does not say what it returns'
    )
  assert 'Args:' in documented, f'{name} does not document its arguments'
  for argument in inspect.signature(function).parameters:
    if argument != 'self':
      assert f'{argument}:' in documented, f'{name}: {argument} undocumented'


@pytest.mark.parametrize('name', tfpa.__all__)
def test_all_lists_names_that_exist(name):
  value = getattr(tfpa, name)
  if inspect.ismodule(value):
    missing = [n for n in value.__all__ if not hasattr(value, n)]
    assert not missing


def test_every_public_part_is_in_the_contract_tests():
  # The contract tests run over `__all__`; here `__all__` over the files.
  listed = dict(
    preconditioners=registry.PRECONDITIONERS, criteria=registry.CRITERIA
  )
  for folder, names in listed.items():
    factories = {
      node.name
      for path in (_ROOT / folder).glob('*.py')
      for node in _tree(path).body
      if isinstance(node, ast.FunctionDef) and node.name == path.stem
    }
    assert factories == set(names), f'{folder}: one file, one name per part'
  assert registry.OPTIMIZERS == tuple(tfpa.optimizers.__all__)


def test_every_builder_is_in_the_contract_tests():
  def unwrap(build):
    while isinstance(build, functools.partial):
      build = build.func
    return build

  from tfp_adaptive import prefab
  from tfp_adaptive import prefab_fisher

  registered = {unwrap(spec.build).__name__ for spec in registry.KERNELS}
  assert registered == {*prefab.__all__, *prefab_fisher.__all__}
  assert registered <= set(tfpa.__all__)


@pytest.mark.slow
def test_importing_the_library_needs_no_optional_package():
  import os
  import subprocess

  blocked = ', '.join(f'{name!r}' for name in (*_FORBIDDEN, 'rich', 'scipy'))
  script = (
    'import sys\n'
    f'for name in ({blocked}): sys.modules[name] = None\n'
    'import tfp_adaptive\n'
    'print(tfp_adaptive.__version__)\n'
  )
  run = subprocess.run(
    [sys.executable, '-c', script],
    env=dict(os.environ, PYTHONPATH=str(_ROOT.parent)),
    capture_output=True,
    text=True,
  )
  assert run.returncode == 0, run.stderr[-2000:]
  assert run.stdout.strip() == tfpa.__version__
