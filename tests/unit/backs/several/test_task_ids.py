"""The ids of tasks of several servers."""

import json

import pytest

from limpet.backs.several.task_ids import marked, unmarked


def test_the_id_of_a_task_begins_with_the_name_of_its_member() -> None:
    result = marked(b'{"resultType": "task", "taskId": "a/b", "ttlMs": 5}', "files")
    assert json.loads(result) == {"resultType": "task", "taskId": "files/a/b", "ttlMs": 5}
    assert unmarked("files/a/b") == ("files", "a/b")


@pytest.mark.parametrize(
    "result", [b'{"content": []}', b'{"content": [{"taskId": "a"}]}', b'["taskId"]', b'{"taskId": 5}']
)
def test_other_results_stay_as_they_are(result: bytes) -> None:
    assert marked(result, "files") == result


@pytest.mark.parametrize("task_id", ["abc", "", None, 5])
def test_an_id_without_a_mark_is_ours(task_id: object) -> None:
    assert unmarked(task_id) is None
