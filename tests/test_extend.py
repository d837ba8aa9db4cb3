"""docs/extend.md is followed to the letter, in a copy of the library."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).resolve().parent.parent
_PAGE = (_ROOT / 'docs/extend.md').read_text()
# (file, code) of each block; the last one adds a line to the registry.
_BLOCKS = re.findall(r'```python\n# (\S+)\n(.*?)```', _PAGE, re.S)
*_FILES, (_REGISTRY, _LINE) = _BLOCKS
_PARTS = 'tests/contracts/test_parts.py'
_KERNELS = (
  'tests/contracts/test_kernel_objects.py',
  'tests/contracts/test_accept_reject.py',
)


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
  folder = tmp_path_factory.mktemp('copy')
  ignore = shutil.ignore_patterns('__pycache__')
  for name in ('tfp_adaptive', 'tests', 'experiments'):
    shutil.copytree(_ROOT / name, folder / name, ignore=ignore)
  shutil.copy(_ROOT / 'pyproject.toml', folder)
  return folder


def _edit(path, old, new):
  text = path.read_text()
  assert old in text
  path.write_text(text.replace(old, new, 1))


def _add(copy, path, code):
  """Adds one new file as the page says."""
  name = pathlib.Path(path).stem
  (copy / path).write_text(code)
  exporting = re.search(rf'# {path}\n.*?Export it in `(\S+)`', _PAGE, re.S)[1]
  module = path.removesuffix('.py').replace('/', '.')
  line = f'from {module} import {name}\n'
  _edit(copy / exporting, 'from tfp_adaptive', f'{line}from tfp_adaptive')
  _edit(copy / exporting, '__all__ = [', f"__all__ = [\n  '{name}',")
  if f"'{name}'" in _LINE:
    _edit(copy / _REGISTRY, '_LINEAR = (\n', f'_LINEAR = (\n{_LINE}')


@pytest.mark.full
@pytest.mark.parametrize(
  'place, tests',
  [
    pytest.param(0, [_PARTS], marks=pytest.mark.nightly),
    pytest.param(1, [_PARTS], marks=pytest.mark.nightly),
    (2, _KERNELS[:1]),
    pytest.param(2, _KERNELS, marks=pytest.mark.nightly),
  ],
)
def test_contract_tests_pass_with_the_new_file_of_the_page(copy, place, tests):
  path, code = _FILES[place]
  if not (copy / path).exists():
    _add(copy, path, code)
  name = pathlib.Path(path).stem
  done = subprocess.run(
    [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', *tests]
    + ['-k', name],
    cwd=copy,
    env=dict(os.environ, PYTHONPATH=str(copy)),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout[-3000:]
