"""Files of JSON lines that several processes write, some of them killed."""

import pytest

from experiments.framework import json_files


def test_half_a_line_is_passed_over_and_costs_no_other(tmp_path):
  path = tmp_path / 'folder' / 'lines.jsonl'
  assert json_files.read_lines(path) == []
  json_files.append_lines(path, {'a': 1}, {'a': 2})
  with path.open('ab') as file:
    file.write('{"name": "é'.encode()[:-1])
  with pytest.warns(UserWarning, match='has 1 lines that are no JSON'):
    assert json_files.read_lines(path) == [{'a': 1}, {'a': 2}]
  json_files.append_lines(path, {'a': 3})
  json_files.append_lines(path, 4)
  with pytest.warns(UserWarning):
    assert json_files.read_lines(path) == [{'a': 1}, {'a': 2}, {'a': 3}, 4]
