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
_BLOCKS = re.findall(r'```python\n# (\S+)\n(.*?)```', _PAGE, re.S)
_REGISTRY = 'experiments/samplers/cases.py'
# New file -> the contract tests that must find what is in it.
_CHECKS = {
  'tfp_adaptive/preconditioners/isotropic.py': [
    'tests/contracts/test_parts.py',
    '-k',
    'isotropic',
  ],
  'tfp_adaptive/linear/criteria/mean_acceptance.py': [
    'tests/contracts/test_parts.py',
    '-k',
    'mean_acceptance',
  ],
  'tfp_adaptive/linear/uniform_walk.py': [
    'tests/contracts/test_kernel_objects.py',
    'tests/contracts/test_accept_reject.py',
    '-k',
    'uniform_walk',
  ],
}


@pytest.fixture(scope='module')
def copy(tmp_path_factory):
  folder = tmp_path_factory.mktemp('copy')
  ignore = shutil.ignore_patterns('__pycache__')
  for name in ('tfp_adaptive', 'tests', 'experiments'):
    shutil.copytree(_ROOT / name, folder / name, ignore=ignore)
  shutil.copy(_ROOT / 'pyproject.toml', folder)
  return folder


def _export(init, module, name):
  """Adds an import and a public name to an `__init__.py`."""
  text = init.read_text()
  start = text.index('from tfp_adaptive')
  text = f'{text[:start]}from {module} import {name}\n{text[start:]}'
  init.write_text(text.replace('__all__ = [', f"__all__ = [\n  '{name}',"))


def _add(copy, path, text):
  """Adds one new file by the page; returns the files that were touched."""
  name = pathlib.Path(path).stem
  (copy / path).write_text(text)
  exporting = re.search(rf'# {path}\n.*?Export it in `(\S+)`', _PAGE, re.S)[1]
  module = path.removesuffix('.py').replace('/', '.')
  _export(copy / exporting, module, name)
  touched = {path, exporting}
  for other, lines in _BLOCKS:
    if other == _REGISTRY and f"'{name}'" in lines:
      registry = copy / _REGISTRY
      registry.write_text(
        registry.read_text().replace('_LINEAR = (\n', f'_LINEAR = (\n{lines}')
      )
      touched.add(other)
  return touched


def _is_sampler(path):
  return path.endswith('walk.py')


def test_the_page_has_a_file_for_each_check():
  assert {path for path, _ in _BLOCKS} == {*_CHECKS, _REGISTRY}


@pytest.mark.full
@pytest.mark.parametrize(
  'path',
  [
    path if _is_sampler(path) else pytest.param(path, marks=pytest.mark.nightly)
    for path in _CHECKS
  ],
)
def test_a_part_is_one_file_an_export_and_a_line_for_samplers(copy, path):
  touched = _add(copy, path, dict(_BLOCKS)[path])
  assert len(touched) == 2 + _is_sampler(path)
  done = subprocess.run(
    [sys.executable, '-m', 'pytest', '-p', 'no:cacheprovider', *_CHECKS[path]],
    cwd=copy,
    env=dict(os.environ, PYTHONPATH=str(copy)),
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stdout[-3000:]
