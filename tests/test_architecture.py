"""Who imports whom: the rooms of the library, and those of the experiments.

One item for each rule; its message lists every place that breaks it.
"""

import ast
import functools
import os
import pathlib
import subprocess
import sys

import pytest

import tfp_adaptive as tfpa

_ROOT = pathlib.Path(tfpa.__file__).parent
_FILES = sorted(_ROOT.rglob('*.py'))
_EXPERIMENTS = _ROOT.parent / 'experiments'
_TOP = ('numpy', 'scipy', 'tensorflow', 'tensorflow_probability')
_FORBIDDEN = (
  'experiments',
  'yaml',
  'pydantic',
  'matplotlib',
  'arviz',
  'arviz_base',
  'arviz_stats',
  'inference_gym',
  'xarray',
  'zarr',
)
_OPTIONAL = (
  ('driver/to_arviz', 'arviz_base'),
  ('driver/to_arviz', 'xarray'),
  ('driver/zarr_arrays', 'zarr'),
)
_PRIVATE = 'core/tfp_private'
_SHARED = ('interfaces', 'core', 'linalg', 'preconditioners')
_FAMILIES = ('linear', 'latent', 'surrogate', 'transport')
# Folder, or module at the top -> what it may import, besides itself.
_MAY_IMPORT = {
  '_version': (),
  'interfaces': (),
  'core': ('interfaces',),
  'linalg': ('interfaces', 'core'),
  'preconditioners': ('interfaces', 'core', 'linalg'),
  'driver': ('_version', 'interfaces', 'core', 'learned'),
  'learned': ('interfaces', 'core'),
  'improper_uniform': ('core',),
  **dict.fromkeys((*_FAMILIES, 'tempering'), _SHARED),
}
# These take from everywhere: collections of names, and what chooses for users.
_COLLECTIONS = ('__init__', 'adaptation', 'posterior', 'proposals')
# HMC behind a map is HMC: what it takes of the family that has trajectories.
_TAKEN_BY_TRANSPORT = (
  'linear/closed_form',
  'linear/criteria',
  'linear/fisher_fit',
  'linear/gradient_adaptation',
  'linear/hessian_product',
  'linear/kept_momentum',
  'linear/log_det',
  'linear/num_steps',
  'linear/optimizers',
  'linear/trajectory',
)
# The sampler of a replica, unless another is given.
_TAKEN = {
  'transport': _TAKEN_BY_TRANSPORT,
  'tempering': ('linear/fisher_divergence',),
}
# Room of the experiments, or module at the top -> what it may import.
_CATALOGUES = ('targets', 'samplers', 'presets')
_LATE_ROOMS = (
  'panel',
  'studies',
  'fuzz',
  'documentation',
)
_ROOM_MAY_IMPORT = {
  '__init__': (),
  'presets': (),
  'targets': ('framework',),
  'samplers': ('framework', 'targets', 'presets'),
  # Which of its modules the catalogues take is held by the rule on circles.
  'framework': _CATALOGUES,
  **dict.fromkeys(_LATE_ROOMS, ('framework', *_CATALOGUES, 'panel')),
  # The study of faults runs commands as they are.
  'studies': (
    *('framework', *_CATALOGUES, 'panel', '__main__'),
    *('models', 'run'),
  ),
  'models': ('framework', 'run'),
  # A page shows what a command prints.
  'documentation': (
    'framework',
    *_CATALOGUES,
    'panel',
    'models',
    'studies',
  ),
  # All commands.
  '__main__': ('framework', *_LATE_ROOMS, 'models', 'run'),
}


@functools.cache
def _tree(path):
  return ast.parse(path.read_text())


def _module(path, root=_ROOT):
  """Returns the name of a module: its path without root and suffix."""
  return path.relative_to(root).as_posix().removesuffix('.py')


def _place(module):
  """Returns the folder of a module, or the name of one at the top."""
  return module.split('/')[0]


@functools.cache
def _imports(path):
  """Returns (line, dotted module, whether in a function) of every import."""
  found = []

  def visit(node, inside):
    inside = inside or isinstance(node, ast.FunctionDef)
    if isinstance(node, ast.Import):
      found.extend((node.lineno, alias.name, inside) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
      assert node.level == 0, f'{path}:{node.lineno}: relative import'
      found.extend(
        (node.lineno, f'{node.module}.{alias.name}', inside)
        for alias in node.names
      )
    for child in ast.iter_child_nodes(node):
      visit(child, inside)

  visit(_tree(path), False)
  return found


def _imported_module(dotted, root):
  """Returns the file under a root that an import reads, or None."""
  if not dotted.startswith(f'{root.name}.'):
    return None
  path = root.joinpath(*dotted.split('.')[1:])
  # `from module import name` reads the module.
  for candidate in (path, path.parent):
    for file in (candidate.with_suffix('.py'), candidate / '__init__.py'):
      if file.is_file():
        return file
  raise AssertionError(f'{dotted} is nowhere')


@functools.cache
def _edges(root=_ROOT):
  """Returns (module, imported module, line) of all imports under a root."""
  found = []
  for path in sorted(root.rglob('*.py')):
    for line, dotted, _ in _imports(path):
      target = _imported_module(dotted, root)
      if target is not None:
        name = _module(target, root).removesuffix('/__init__')
        found.append((_module(path, root), name, line))
  return found


def _imports_under(root):
  """Returns {module: the modules under the same root that it imports}."""
  imports = {}
  for module, target, _ in _edges(root):
    imports.setdefault(module.removesuffix('/__init__'), set()).add(target)
  return imports


def _is_allowed(module, target):
  """Whether the table lets a module import another one of the library."""
  place, other = _place(module), _place(target)
  if target.startswith(tuple(_TAKEN.get(place, ()))):
    return True
  return place in _COLLECTIONS or place == other or other in _MAY_IMPORT[place]


def _circle(imports):
  """Returns a way from a module to itself; `imports`: module -> modules."""
  done = set()

  def visit(module, way):
    if module in way:
      return [*way[way.index(module) :], module]
    if module in done:
      return None
    done.add(module)
    ways = (visit(m, [*way, module]) for m in sorted(imports.get(module, ())))
    return next(filter(None, ways), None)

  return next(filter(None, (visit(m, []) for m in sorted(imports))), None)


def test_only_tensorflow_numpy_scipy_and_the_standard_library_are_imported():
  foreign = []
  for path in _FILES:
    for line, module, inside_function in _imports(path):
      top = module.split('.')[0]
      # Optional: draws as a DataTree.
      if inside_function and (_module(path), top) in _OPTIONAL:
        continue
      if top not in (*_TOP, 'tfp_adaptive', *sys.stdlib_module_names):
        foreign.append(f'{path}:{line} imports {module}')
  assert not foreign


def test_private_modules_of_tfp_are_imported_in_one_file_only():
  names = ('tensorflow_probability.python', 'tfp.python', 'tf.python')
  found = [
    f'{path}: {name}'
    for path in _FILES
    for name in (*names, 'tensorflow.python')
    if _module(path) != _PRIVATE and name in path.read_text()
  ]
  assert not found


def test_every_place_of_the_library_has_a_rule():
  places = {_place(_module(path)) for path in _FILES}
  assert places == {*_MAY_IMPORT, *_COLLECTIONS}


@pytest.mark.parametrize('place', _MAY_IMPORT)
def test_a_place_imports_only_what_it_may(place):
  assert not [
    f'{module}:{line} imports {target}'
    for module, target, line in _edges()
    if _place(module) == place and not _is_allowed(module, target)
  ]


@pytest.mark.parametrize(
  'module, target',
  [
    ('interfaces/families', 'latent/priors/block'),
    ('interfaces/shared', 'core/random'),
    ('core/proposal', 'linalg/banded'),
    ('core/proposal', 'linear/langevin'),
    ('preconditioners/banded', 'linear/trajectory'),
    ('linear/langevin', 'latent/priors/block'),
    ('transport/hamiltonian', 'linear/hamiltonian'),
    ('surrogate/walk', 'linear/trajectory'),
    ('driver/sample', 'preconditioners/banded'),
    ('latent/marginal_gradient', 'proposals'),
    ('linear/langevin', '__init__'),
  ],
)
def test_an_import_against_the_rules_is_seen(module, target):
  assert not _is_allowed(module, target)


def test_the_first_page_imports_nothing_but_types():
  imports = _imports(_ROOT / 'interfaces' / 'shared.py')
  tops = {module.split('.')[0] for _, module, _ in imports}
  assert tops == {'collections', 'typing'}


def _rooms_above(module, imports):
  """Returns the rooms that use a module, by way of shared ones too.

  Families, and what stands above them: driver, posterior, what is learned.
  """
  above, new = set(), {module}
  while new:
    above |= new
    shared = {m for m in new if _place(m) in _SHARED}
    new = {m for m, targets in imports.items() if targets & shared} - above
  return {_place(m) for m in above} & {*_FAMILIES, 'driver', 'learned'}


def test_a_module_of_the_core_is_used_by_three_rooms_or_more():
  imports = _imports_under(_ROOT)
  core = {_module(path) for path in (_ROOT / 'core').glob('[!_]*.py')}
  assert core
  assert not {
    module: rooms
    for module in core
    if len(rooms := _rooms_above(module, imports)) < 3
  }


def test_a_module_of_the_core_that_few_rooms_use_is_seen():
  imports = {
    'linear/langevin': {'core/first'},
    'latent/elliptical_slice': {'core/second'},
    'core/second': {'core/both'},
    'core/first': {'core/both'},
    'driver/sample': {'core/first'},
    'experiments/run': {'core/first'},
  }
  assert _rooms_above('core/first', imports) == {'linear', 'driver'}
  assert _rooms_above('core/both', imports) == {'linear', 'latent', 'driver'}


def test_no_module_imports_itself_by_way_of_others():
  imports = _imports_under(_ROOT)
  assert not _circle(imports)
  # As one import more would have it.
  imports['core/random'] = {*imports.get('core/random', ()), 'linear/langevin'}
  assert _circle(imports)


def _may_room_import(module, target):
  """Whether the table lets a module of the experiments import another one."""
  place, other = _place(module), _place(target)
  return place == other or other in _ROOM_MAY_IMPORT[place]


def test_every_room_of_the_experiments_has_a_rule():
  files = _EXPERIMENTS.rglob('*.py')
  places = {_place(_module(path, _EXPERIMENTS)) for path in files}
  assert places == set(_ROOM_MAY_IMPORT)


@pytest.mark.parametrize('place', _ROOM_MAY_IMPORT)
def test_a_room_of_the_experiments_imports_only_what_it_may(place):
  assert not [
    f'{module}:{line} imports {target}'
    for module, target, line in _edges(_EXPERIMENTS)
    if _place(module) == place and not _may_room_import(module, target)
  ]


@pytest.mark.parametrize(
  'module, target',
  [
    ('framework/runner', 'studies/bench'),
    ('framework/cli', 'panel/cli'),
    ('framework/figures', '__main__'),
    ('targets/banana', 'studies/growing_history'),
    ('samplers/adaptive', 'panel/config'),
    ('panel/run', 'studies/bench'),
    ('studies/oracle', 'fuzz/run'),
    ('models/arma', 'studies/rivals'),
  ],
)
def test_an_import_against_the_rules_of_the_rooms_is_seen(module, target):
  assert not _may_room_import(module, target)


def test_no_module_of_the_experiments_imports_itself_by_way_of_others():
  # Those inside of functions count.
  imports = _imports_under(_EXPERIMENTS)
  assert not _circle(imports)
  # As the commands had it once.
  imports['panel/cli'] = {*imports['panel/cli'], '__main__'}
  assert _circle(imports)


def test_ray_is_imported_in_one_file_only():
  found = {
    path.relative_to(_ROOT.parent).as_posix()
    for path in [*_FILES, *_EXPERIMENTS.rglob('*.py')]
    for _, dotted, _ in _imports(path)
    if dotted.split('.')[0] == 'ray'
  }
  assert found == {'experiments/framework/ray_executor.py'}


@pytest.mark.full
def test_importing_the_library_needs_no_optional_package():
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
